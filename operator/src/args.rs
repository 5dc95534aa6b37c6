//! Flags and subcommands.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, Subcommand};
use knative_operator_runtime::duration::duration;
use knative_operator_runtime::hub::HubArgs;
use knative_operator_runtime::log::LogArgs;
use knative_operator_shared::api::Component;
use knative_operator_shared::crd;

use crate::command::check::CheckArgs;
use crate::command::diff::DiffArgs;
use crate::command::lint::LintArgs;
use crate::command::render::RenderArgs;
use crate::command::versions::VersionsArgs;
use crate::release::{Bundle, Downloads, DownloadsError, Library};
use crate::render::Settings;
use crate::{command, run, yaml};

/// The poll interval when none is given, or one that is too short.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Installs Knative Serving and Eventing, on this cluster or on spokes, and keeps them so.
#[derive(Debug, Parser)]
#[command(name = "knative-operator", version)]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Prints what would be applied for custom resources, in apply order, without a cluster.
    Render(RenderArgs),
    /// Shows what would change on a cluster, as a unified diff. Exit status: 0 nothing, 1 something, 2 an error.
    Diff(DiffArgs),
    /// Says what the webhook would refuse or warn of, without a cluster. Exit status: 0 nothing refused, 1 something, 2 the file can't be read.
    Lint(LintArgs),
    /// Waits until URLs answer with success: what `helm test` runs.
    Check(CheckArgs),
    /// Prints the rules, as docs/rules.md has them.
    #[command(hide = true)]
    Rules,
    /// Lists the versions that the release bundle offers.
    Versions(VersionsArgs),
    /// Prints the CustomResourceDefinitions, as YAML.
    Crds {
        /// Only that of this kind.
        #[arg(long, value_parser = ["KnativeServing", "KnativeEventing"])]
        kind: Option<String>,
    },
}

/// Flags of the operator itself.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// What is logged.
    #[command(flatten)]
    pub log: LogArgs,
    /// How the hub is reached.
    #[command(flatten)]
    pub hub: HubArgs,
    /// Path of the access provider configuration (KEP-5339). Left out: multi-cluster support is disabled.
    #[arg(long, value_name = "PATH")]
    pub clusterprofile_provider_file: Option<PathBuf>,
    /// How old the truth about a spoke may be where no watch can be held, such as 10s or 1m30s. Below 1s the default is used.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
    pub remote_deployments_poll_interval: Duration,
    /// Where releases come from.
    #[command(flatten)]
    pub releases: ReleaseArgs,
    /// How long a credential plugin may take.
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    pub exec_timeout: Duration,
    /// How many custom resources are worked on at the same time. Waiting for a spoke that doesn't answer doesn't count.
    #[arg(long, default_value_t = 32, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_concurrent_reconciles: u16,
    /// In how many shards the fleet is divided, which the replicas share; all clusters of a shard are one replica's. With 1, one replica
    /// does all the work and the others wait. Must be the same for all replicas.
    #[arg(long, env = "SHARDS", default_value_t = 1, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=256))]
    pub shards: u32,
    /// Address to listen on.
    #[arg(long, env = "BIND_ADDRESS", default_value = "0.0.0.0")]
    pub bind_address: IpAddr,
    /// Port for /healthz, /readyz and /metrics.
    #[arg(long, env = "METRICS_PORT", default_value_t = 9090)]
    pub metrics_port: u16,
    /// Namespace of the Lease.
    #[arg(long, env = "SYSTEM_NAMESPACE", default_value = "knative-operator")]
    pub namespace: String,
    /// Name of this replica, which no other has.
    #[arg(long, env = "POD_NAME")]
    pub pod_name: Option<String>,
}

/// Where releases come from, and what they are rendered with.
#[derive(Clone, Debug, clap::Args)]
pub struct ReleaseArgs {
    /// Path of the release bundle.
    #[arg(long, env = "KO_DATA_PATH", default_value = "/var/run/ko", value_name = "PATH")]
    pub releases: PathBuf,
    /// How long the download of a manifest that a spec names by URL may take.
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration)]
    pub download_timeout: Duration,
    /// The oldest Kubernetes that Knative's components agree to run on, such as v1.34.0. Left out: what they say themselves.
    #[arg(long, env = "KUBERNETES_MIN_VERSION", value_name = "VERSION")]
    pub kubernetes_min_version: Option<String>,
}

impl ReleaseArgs {
    /// Where releases come from.
    pub fn library(&self) -> Result<Library, DownloadsError> {
        Ok(Library { bundle: Bundle::at(self.releases.clone()), downloads: Downloads::new(self.download_timeout)? })
    }

    /// What they are rendered with.
    pub fn settings(&self) -> Settings {
        Settings { kubernetes_min_version: self.kubernetes_min_version.clone().filter(|v| !v.is_empty()) }
    }
}

impl RunArgs {
    /// The poll interval in force.
    pub fn poll_interval(&self) -> Duration {
        if self.remote_deployments_poll_interval < Duration::from_secs(1) {
            POLL_INTERVAL
        } else {
            self.remote_deployments_poll_interval
        }
    }
}

impl Args {
    /// Does what was asked for.
    pub fn execute(self) -> ExitCode {
        let Self { command, run } = self;
        match command {
            None => run::run(run),
            Some(Command::Render(args)) => command::render::run(&args),
            Some(Command::Diff(args)) => command::diff::run(&args),
            Some(Command::Check(args)) => command::check::run(&args),
            Some(Command::Lint(args)) => command::lint::run(&args),
            Some(Command::Rules) => command::rules::run(),
            Some(Command::Versions(args)) => command::versions::run(args),
            Some(Command::Crds { kind }) => command::print(&crds(kind.as_deref())),
        }
    }
}

fn crds(kind: Option<&str>) -> String {
    let wanted = Component::ALL.into_iter().filter(|c| kind.is_none_or(|k| k == c.kind()));
    // A definition is plain data with string keys: writing it as YAML can't fail.
    wanted.map(|c| format!("---\n{}", yaml::write(&crd::definition(c)).unwrap_or_default())).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn flags_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn the_go_operators_flags_are_understood() {
        let args = Args::try_parse_from([
            "x",
            "--clusterprofile-provider-file=/etc/x.json",
            "--remote-deployments-poll-interval=1m30s",
        ])
        .unwrap();
        assert_eq!(args.run.poll_interval(), Duration::from_secs(90));
        for (given, expected) in [("500ms", 10), ("0s", 10), ("1s", 1), ("1h", 3600), ("1.5s", 1)] {
            let args = Args::try_parse_from(["x", &format!("--remote-deployments-poll-interval={given}")]).unwrap();
            assert_eq!(args.run.poll_interval().as_secs(), expected, "{given}");
        }
        for wrong in ["10", "s", "", "ten seconds", "-1s"] {
            assert!(
                Args::try_parse_from(["x", &format!("--remote-deployments-poll-interval={wrong}")]).is_err(),
                "{wrong}"
            );
        }
    }
}
