//! Flags and subcommands: those of the operator itself (the default in a Pod), `render`, `lint`,
//! `images`, `spoke-role` and `versions` without a cluster, `diff`, `fleet`, `audit`, `preflight`
//! and `version` against one, `debug` against a Pod of the operator.

mod access_args;
mod audit;
mod check;
mod commands;
mod complete;
mod debug;
mod diff;
mod files;
mod fleet;
mod images;
mod kind_arg;
mod lines;
mod lint;
mod list;
mod manual;
mod output;
mod permissions;
mod preflight;
mod read;
mod release_args;
mod remark;
mod render;
mod rules;
pub mod run_args;
mod sarif;
mod spoke_role;
mod status;
mod table;
mod take_over;
mod terminal;
mod ui;
mod unified;
mod unknown;
mod upgrade;
mod upgrade_fleets;
mod version;
mod versions;
mod wait;

use std::path::Path;
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};
use knative_operator_shared::api::Component;
use knative_operator_shared::{crd, fleet_crd};

use self::audit::AuditArgs;
use self::check::CheckArgs;
use self::debug::DebugArgs;
use self::diff::DiffArgs;
use self::fleet::FleetArgs;
use self::images::ImagesArgs;
use self::kind_arg::kind_among;
use self::lint::LintArgs;
use self::preflight::PreflightArgs;
use self::render::RenderArgs;
use self::run_args::RunArgs;
use self::spoke_role::SpokeRoleArgs;
use self::status::StatusArgs;
use self::take_over::TakeOverArgs;
use self::ui::UiArgs;
use self::upgrade::UpgradeArgs;
use self::version::VersionArgs;
use self::versions::VersionsArgs;
use self::wait::WaitArgs;

use knative_operator_shared::yaml;
use serde_json::Value;

/// Installs Knative Serving and Eventing on this cluster or on spokes, and repairs drift.
#[derive(Debug, Parser)]
// A flag that is given again replaces the one before, as in Go: a patch may append it.
#[command(name = "knative-operator", version, args_conflicts_with_subcommands = true, args_override_self = true)]
// Its own flags are those of `run`, whose help shows them.
#[command(mut_args(|flag| flag.hide(true)))]
pub struct Args {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    run: RunArgs,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Runs the operator. In a Pod, this is what the command does without a subcommand.
    ///
    /// Exit status: 0 stopped by a signal, 1 error.
    Run(Box<RunArgs>),
    /// Prints the objects that would be applied for custom resources, in apply order, without a
    /// cluster.
    ///
    /// Exit status: 0 printed, 2 error.
    Render(RenderArgs),
    /// Shows what would change on a cluster, as a unified diff.
    ///
    /// Exit status: 0 no change, 1 changes, 2 error.
    Diff(DiffArgs),
    /// Reports what the webhook would refuse or warn about, without a cluster.
    ///
    /// Exit status: 0 nothing refused, 1 refused, 2 error: a file or the release bundle can't be
    /// read.
    Lint(LintArgs),
    /// Shows the state of all fleets, clusters and components of a hub, and what to do about
    /// problems.
    ///
    /// Exit status: 0 all Ready, 1 not, 2 error.
    Status(StatusArgs),
    /// Waits for a resource, and prints what it waits for.
    ///
    /// Exit status: 0 done, 1 timeout, or a problem that does not end by itself, 2 error.
    Wait(WaitArgs),
    /// Moves installations that belong to another owner, such as a lost hub, to the resources of
    /// this hub. Shows them, and asks.
    ///
    /// Exit status: 0 done or nothing to do, 1 declined or not possible, 2 error.
    TakeOver(TakeOverArgs),
    /// Checks clusters before an installation: the way to them, versions, permissions, what is
    /// installed there, and what their API servers refuse. Writes nothing, but for the annotation
    /// with which the operator records where the credential in a Secret is sent first, and Pods
    /// that pull images, on demand.
    ///
    /// Exit status: 0 no check failed, 1 one failed, 2 error.
    Preflight(Box<PreflightArgs>),
    /// Lists the stored resources that the webhook would refuse with `authorization: enforce`, if
    /// they were created now, and who lacks which permission; in all namespaces, or that of
    /// --namespace.
    ///
    /// Exit status: 0 nothing, 1 there is something, 2 error.
    Audit(AuditArgs),
    /// Shows what an upgrade or a rollback of the operator does to installations.
    Upgrade(UpgradeArgs),
    /// Serves a local, read-only web page with the state of a hub: of all namespaces, or that of
    /// --namespace.
    ///
    /// Exit status: 0 stopped by a signal, 2 error.
    Ui(UiArgs),
    /// Plans, observes and controls rollouts of KnativeFleets.
    Fleet(FleetArgs),
    /// Prints what an operator does, as JSON: its tasks, watches, connections, Leases, limits and
    /// fleets, without credentials. Connects to a Pod of the operator, such as by a kubectl
    /// port-forward; the chart needs the values metrics.secure and metrics.debug.
    ///
    /// Exit status: 0 printed, 2 error.
    Debug(DebugArgs),
    /// Waits until URLs answer with success; `helm test` runs it.
    #[command(hide = true)]
    Check(CheckArgs),
    /// Prints the rules in the form of docs/user/rules.md.
    #[command(hide = true)]
    Rules,
    /// Prints who may set which field, in the form of docs/operate/permissions.md.
    #[command(hide = true)]
    Permissions,
    /// Prints the reference of all commands, in the form of docs/user/commands.md.
    #[command(hide = true)]
    Commands,
    /// Prints the completions of a shell: `source <(knative-operator completions bash)`.
    ///
    /// Exit status: 0 printed, 2 error.
    #[command(visible_alias = "completion")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Writes manual pages to a folder.
    #[command(hide = true)]
    Man {
        /// The folder.
        folder: std::path::PathBuf,
    },
    /// Prints the versions of the command and, if there is a cluster, of the operator, its webhook
    /// and its chart, and the newest versions in its release bundle. Warns if they are too far
    /// apart.
    ///
    /// Exit status: 0 printed, 2 error.
    Version(VersionArgs),
    /// Lists the versions in the release bundle.
    ///
    /// Exit status: 0 printed, 2 error.
    Versions(VersionsArgs),
    /// Lists the images of resources and of the operator, without a cluster, and prints how to copy
    /// them to a mirror, and the settings with which they come from there.
    ///
    /// Without --filename, they are a KnativeServing and a KnativeEventing without settings.
    ///
    /// Exit status: 0 printed, 2 error.
    Images(ImagesArgs),
    /// Prints the smallest ClusterRole with which the credential of a spoke can install, upgrade
    /// and remove custom resources, without a cluster.
    ///
    /// Without --filename, they are a KnativeServing and a KnativeEventing without settings, which
    /// are called knative-serving and knative-eventing.
    ///
    /// Exit status: 0 printed, 2 error.
    SpokeRole(SpokeRoleArgs),
    /// Prints the CustomResourceDefinitions, as YAML: those of KnativeServing and KnativeEventing,
    /// or one of them all.
    ///
    /// Exit status: 0 printed, 2 error.
    Crds {
        /// Prints the definition of this kind only.
        #[arg(long, ignore_case = true,
            value_parser = kind_among(["KnativeServing", "KnativeEventing", "KnativeFleet", "KnativeFleetApproval"]))]
        kind: Option<&'static str>,
    },
}

pub use complete::answer as answer_completions;

/// The command line of `program`, which may be a plugin of kubectl.
fn command_of(program: Option<&Path>) -> clap::Command {
    let name = program.and_then(Path::file_name).unwrap_or_default();
    let is_plugin = name.to_string_lossy().starts_with("kubectl-");
    if is_plugin { Args::command().bin_name("kubectl knative-operator") } else { Args::command() }
}

/// The command line of this process.
fn own_command() -> clap::Command {
    command_of(std::env::args_os().next().as_deref().map(Path::new))
}

impl Args {
    /// Reads the arguments of the process. Ends it after an error, and after the help.
    pub fn read() -> Self {
        Self::from_arg_matches(&own_command().get_matches()).unwrap_or_else(|error| error.exit())
    }

    /// Runs the subcommand, or the operator, which `operator` does.
    pub fn execute(self, operator: impl FnOnce(RunArgs) -> ExitCode) -> ExitCode {
        let Self { command, run } = self;
        match command {
            None if is_bare() => help(),
            None => operator(run),
            Some(Command::Run(args)) => operator(*args),
            Some(Command::Render(args)) => render::run(&args),
            Some(Command::Diff(args)) => diff::run(&args),
            Some(Command::Fleet(args)) => fleet::run(&args),
            Some(Command::Status(args)) => status::run(&args),
            Some(Command::Audit(args)) => audit::run(&args),
            Some(Command::Preflight(args)) => preflight::run(&args),
            Some(Command::TakeOver(args)) => take_over::run(&args),
            Some(Command::Upgrade(args)) => upgrade::run(&args),
            Some(Command::Ui(args)) => ui::run(args),
            Some(Command::Wait(args)) => wait::run(&args),
            Some(Command::Debug(args)) => debug::run(&args),
            Some(Command::Check(args)) => check::run(&args),
            Some(Command::Lint(args)) => lint::run(&args),
            Some(Command::Completions { shell }) => manual::completions(shell),
            Some(Command::Man { folder }) => manual::write(&folder),
            Some(Command::Rules) => rules::run(),
            Some(Command::Permissions) => permissions::run(),
            Some(Command::Commands) => commands::run(),
            Some(Command::Version(args)) => version::run(&args),
            Some(Command::Versions(args)) => versions::run(args),
            Some(Command::Images(args)) => images::run(&args),
            Some(Command::SpokeRole(args)) => spoke_role::run(&args),
            Some(Command::Crds { kind }) => output::print_data(&crds(kind)),
        }
    }
}

/// Whether the command was called alone, and not in a Pod: by somebody who looks for help, and
/// whose kubeconfig may name any cluster.
fn is_bare() -> bool {
    std::env::args_os().nth(1).is_none() && std::env::var_os("KUBERNETES_SERVICE_HOST").is_none()
}

fn help() -> ExitCode {
    output::print_data(&own_command().render_help().to_string())
}

fn crds(kind: Option<&str>) -> String {
    let components = Component::ALL.into_iter().filter(|c| kind.is_none_or(|k| k == c.kind())).map(crd::definition);
    let is_wanted = |definition: &Value| kind.is_some_and(|kind| definition["spec"]["names"]["kind"] == kind);
    let fleets = fleet_crd::definitions().into_iter().filter(is_wanted);
    // A definition is plain data with string keys, so it always serializes.
    components.chain(fleets).map(|crd| format!("---\n{}", yaml::write(&crd).unwrap_or_default())).collect()
}

#[cfg(test)]
mod convention_tests;
#[cfg(test)]
mod remedy_tests;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn flags_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn help_has_the_flags_of_the_operator_below_run_only() {
        let help = |name: &str, subcommand: Option<&str>| {
            let mut command = command_of(Some(Path::new(name)));
            command.build();
            let below = subcommand.and_then(|subcommand| command.find_subcommand_mut(subcommand).cloned());
            below.unwrap_or(command).render_long_help().to_string()
        };
        let top = help("/usr/bin/knative-operator", None);
        assert!(top.contains("Usage: knative-operator") && !top.contains("--local-installation"), "{top}");
        assert!(!top.contains("\n  check") && top.contains("completion]"), "{top}");
        assert!(help("knative-operator", Some("run")).contains("--local-installation"));
        let plugin = help("/usr/bin/kubectl-knative_operator", Some("lint"));
        assert!(plugin.contains("Usage: kubectl knative-operator lint "), "{plugin}");
    }

    #[test]
    fn flags_of_users_are_their_own() {
        let user = |line: &[&str]| {
            let args = Args::try_parse_from([&["x", "fleet", "status", "f"], line].concat()).unwrap();
            format!("{:?}", args.command)
        };
        assert!(user(&[]).contains("kubeconfig: None, context: None, namespace: None"), "{}", user(&[]));
        assert!(user(&["-n", "a", "--context", "b"]).contains(r#"context: Some("b"), namespace: Some("a")"#));
    }

    #[test]
    fn flags_of_the_operator_are_not_lost_before_a_subcommand() {
        assert!(Args::try_parse_from(["x", "--local-installation=false", "run"]).is_err());
        let args = Args::try_parse_from(["x", "run", "--local-installation=false"]).unwrap();
        assert!(matches!(args.command, Some(Command::Run(run)) if !run.local_installation));
    }

    #[test]
    fn go_operator_flags_are_accepted() {
        let args = Args::try_parse_from([
            "x",
            "--clusterprofile-provider-file=/etc/x.json",
            "--remote-deployments-poll-interval=1m30s",
        ])
        .unwrap();
        assert_eq!(args.run.poll_interval(), Duration::from_secs(90));
        let below = ["500ms", "0s", "0", "500us", "500µs", "1ns", "-1s", "-1h30m"].map(|given| (given, 10));
        for (given, expected) in below.into_iter().chain([("1s", 1), ("1h", 3600), ("1.5s", 1), ("+20s", 20)]) {
            let args = Args::try_parse_from(["x", &format!("--remote-deployments-poll-interval={given}")]).unwrap();
            assert_eq!(args.run.poll_interval().as_secs(), expected, "{given}");
        }
        let apart = Args::try_parse_from(["x", "--remote-deployments-poll-interval", "-1s"]).unwrap();
        assert_eq!(apart.run.poll_interval().as_secs(), 10);
        for wrong in ["10", "s", "", "ten seconds", "--1s"] {
            assert!(
                Args::try_parse_from(["x", &format!("--remote-deployments-poll-interval={wrong}")]).is_err(),
                "{wrong}"
            );
        }
    }

    #[test]
    fn repeated_flag_replaces_the_one_before() {
        for command in [&["x"][..], &["x", "run"]] {
            let flags = ["--remote-deployments-poll-interval=10s", "--shards=2", "--enable-fleets", "--enable-fleets"];
            let again = ["--remote-deployments-poll-interval=30s", "--shards=4", "--local-installation=false"];
            let line = [command, &flags, &again, &["--local-installation=true"]].concat();
            let args = Args::try_parse_from(line).unwrap();
            let run = match args.command {
                Some(Command::Run(run)) => *run,
                _ => args.run,
            };
            assert_eq!((run.poll_interval(), run.shards), (Duration::from_secs(30), 4));
            assert!(run.enable_fleets && run.local_installation);
        }
        // Lists grow.
        let files = Args::try_parse_from(["x", "lint", "-f", "a", "-f", "b"]).unwrap();
        assert!(format!("{:?}", files.command).contains("\"b\""));
    }
}
