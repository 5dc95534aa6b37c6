//! `knative-operator preflight`: checks clusters before an installation.
//!
//! [`target`] finds the clusters and what is to be installed there. [`connect`] takes the
//! operator's own way to each, [`cluster`] makes the checks of one that answers, with [`rights`],
//! [`ownership`] and [`admit`]; [`refusals`] tells what the answers mean. [`pull`] runs Pods that
//! pull images ([`pull_pod`]: what they are, and what they tell). [`check`] has the results,
//! [`text`] prints them.

mod admit;
mod check;
mod cluster;
mod connect;
mod ownership;
mod pull;
mod pull_pod;
mod refusals;
mod rights;
mod target;
mod text;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use futures::StreamExt;
use knative_operator_cluster_access::identity::cluster_uid;
use knative_operator_release::{HostPolicy, Library};
use knative_operator_runtime::duration::duration;
use knative_operator_runtime::error_text;
use knative_operator_runtime::signal;
use knative_operator_runtime::user::{Connection, UserArgs};
use knative_operator_shared::api::{ClusterProfileReference, Component, Knative};
use knative_operator_shared::text::one_line;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use self::check::{Finding, Id, Report};
use self::cluster::Subject;
use self::connect::{Credentials, Ways};
use self::pull::Pulls;
use self::target::CheckTarget;
use super::access_args::AccessArgs;
use super::files::FileArgs;
use super::fleet;
use super::output::{self, Format};
use super::release_args::ReleaseArgs;
use super::status::Style;

/// Number of clusters that are checked at the same time.
const CONCURRENCY: usize = 8;

/// Flags of `preflight`.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("filename", |filename| filename.required(false)))]
pub struct PreflightArgs {
    #[command(flatten)]
    user: UserArgs,
    /// Clusters, as NAMESPACE/NAME of their ClusterProfiles. Without them, --fleet and --all, the
    /// cluster of the kubeconfig itself is checked, with the rights of its user.
    #[arg(value_name = "CLUSTER", value_parser = reference, conflicts_with_all = ["fleet", "all"])]
    clusters: Vec<ClusterProfileReference>,
    /// Checks the clusters that this fleet selects, for what it installs there.
    #[arg(long, value_name = "NAME", conflicts_with = "all")]
    fleet: Option<String>,
    /// Checks the clusters of all ClusterProfiles.
    #[arg(long)]
    all: bool,
    #[command(flatten)]
    files: FileArgs,
    /// Path of the access provider configuration (KEP-5339), whose plugins run on this machine.
    /// Defaults to that of the operator's Pod.
    #[arg(long, value_name = "PATH")]
    clusterprofile_provider_file: Option<PathBuf>,
    /// Namespace of the operator, which has the Secrets with credentials.
    #[arg(long, value_name = "NAME", default_value = "knative-operator")]
    operator_namespace: String,
    #[command(flatten)]
    access: AccessArgs,
    /// Time limit of a credential plugin.
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    exec_timeout: Duration,
    /// Runs a Pod for each resource on its cluster, to see whether the nodes can pull an image of
    /// each registry, and deletes it. By default, nothing runs.
    #[arg(long)]
    pull: bool,
    #[command(flatten)]
    releases: ReleaseArgs,
    /// Output format.
    #[arg(short, long, value_parser = Format::among(&Format::TEXT_OR_VALUE), default_value = "text")]
    output: Format,
}

/// The ClusterProfile `text`, which is NAMESPACE/NAME.
pub fn reference(text: &str) -> Result<ClusterProfileReference, String> {
    let text = fleet::reference(text)?;
    let (namespace, name) = text.split_once('/').unwrap_or_default();
    Ok(ClusterProfileReference { name: name.to_owned(), namespace: namespace.to_owned() })
}

/// Checks the clusters. Exit status: 0 no check failed, 1 one failed, 2 error.
pub fn run(args: &PreflightArgs) -> ExitCode {
    output::run_on(&args.user, |connection| Box::pin(execute(args, connection)))
}

async fn execute(args: &PreflightArgs, connection: Connection) -> Result<ExitCode, String> {
    // The user's own files may name any host; what is stored is somebody else's.
    let policy = if args.files.is_empty() { args.access.host_policy() } else { HostPolicy::any() };
    let library = args.releases.library(policy).map_err(|error| error.to_string())?;
    let given = args.given()?;
    let stop = if args.pull {
        signal::stop().map_err(|error| format!("cannot handle signals: {error}"))?
    } else {
        CancellationToken::new()
    };
    let pulls = args.pull.then(|| Pulls::until(stop.clone()));
    let reports = tokio::select! {
        reports = Box::pin(args.reports(&connection, &library, given, pulls.as_ref())) => reports,
        () = stop.cancelled() => Err("interrupted".to_owned()),
    };
    if let Some(pulls) = &pulls {
        pulls.end().await;
    }
    let reports = reports?;
    let has_passed = reports.iter().all(Report::has_passed);
    let clusters: Vec<Value> = reports.iter().map(Report::value).collect();
    args.output
        .print(&text::render(&reports, &Style::of_stdout()), &json!({"passed": has_passed, "clusters": clusters}));
    Ok(if has_passed { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

impl PreflightArgs {
    /// The checks of all clusters.
    async fn reports(
        &self,
        connection: &Connection,
        library: &Library,
        given: Option<Vec<Knative>>,
        pulls: Option<&Pulls>,
    ) -> Result<Vec<Report>, String> {
        if self.clusters.is_empty() && self.fleet.is_none() && !self.all {
            return Ok(vec![Box::pin(self.check_own(connection, library, given, pulls)).await?]);
        }
        Box::pin(self.check_clusters(connection, library, given, pulls)).await
    }

    /// The resources that the user gives.
    fn given(&self) -> Result<Option<Vec<Knative>>, String> {
        if self.files.is_empty() {
            return Ok(None);
        }
        let (found, warnings) = self.files.resources(None, false)?;
        for warning in warnings {
            output::report(&format!("warning: {}", one_line(&warning)));
        }
        Ok(Some(found.into_iter().map(|one| one.resource).collect()))
    }

    /// Checks the cluster of `connection` itself.
    async fn check_own(
        &self,
        connection: &Connection,
        library: &Library,
        given: Option<Vec<Knative>>,
        pulls: Option<&Pulls>,
    ) -> Result<Report, String> {
        let resources = if let Some(given) = given {
            given
        } else {
            let mut usual = target::usual()?;
            // As on a spoke, whose permissions an administrator grants.
            for one in &mut usual {
                one.common_mut().cluster_profile_ref.get_or_insert_default();
            }
            usual
        };
        check_bundle(library, &resources)?;
        let mut report = Report::new(connection.server.clone());
        let client = &connection.client;
        // One that can't be reached is an error of the command.
        client.apiserver_version().await.map_err(|error| error_text(&error))?;
        report.add(Id::Connection, Finding::passed(&connection.server), None);
        let releases = &self.releases;
        let resources = &resources;
        let subject = Subject { client, hub: None, reference: None, resources, releases, library, pulls };
        Box::pin(subject.check(&mut report)).await;
        Ok(report.complete(true))
    }

    /// Checks the clusters that the user names.
    async fn check_clusters(
        &self,
        connection: &Connection,
        library: &Library,
        given: Option<Vec<Knative>>,
        pulls: Option<&Pulls>,
    ) -> Result<Vec<Report>, String> {
        let hub = &connection.client;
        let ways = Ways::read(
            hub,
            Credentials {
                providers: connect::providers(self.clusterprofile_provider_file.as_deref())?,
                namespace: self.operator_namespace.clone(),
                access: &self.access,
                timeout: self.exec_timeout,
            },
        )
        .await;
        let uid = cluster_uid(hub).await.map_err(|error| format!("cannot identify the hub: {}", error_text(&error)))?;
        let targets = self.targets(connection, &ways, given.as_deref()).await?;
        targets.iter().try_for_each(|target| check_bundle(library, &target.resources))?;
        let checks: Vec<_> = targets
            .iter()
            .map(|target| Box::pin(check_one(target, &ways, uid.as_deref(), (&self.releases, library), pulls)))
            .collect();
        Ok(futures::stream::iter(checks).buffered(CONCURRENCY).collect().await)
    }

    /// The clusters, and what is to be installed there.
    async fn targets(
        &self,
        connection: &Connection,
        ways: &Ways,
        given: Option<&[Knative]>,
    ) -> Result<Vec<CheckTarget>, String> {
        let hub = &connection.client;
        let stored = if given.is_some() { Vec::new() } else { fleet::resources(hub).await? };
        let mut targets = Vec::new();
        let mut add = |cluster: &ClusterProfileReference, adds: Vec<Knative>| {
            let resources = target::resources_for(cluster, given, &stored, adds)?;
            targets.push(CheckTarget { reference: cluster.clone(), resources });
            Ok::<(), String>(())
        };
        if let Some(name) = &self.fleet {
            let selection = target::selection(hub, &connection.namespace, name).await?;
            for (cluster, traits) in &selection.clusters {
                add(cluster, selection.resources(cluster, traits)?)?;
            }
            if selection.clusters.is_empty() {
                return Err(format!("KnativeFleet {}/{name} selects no cluster", connection.namespace));
            }
        } else if self.all {
            let (_, profiles) = ways.profiles.all().map_err(|error| error.to_string())?;
            let sorted: BTreeSet<&ClusterProfileReference> = profiles.keys().collect();
            if sorted.is_empty() {
                return Err("the hub has no ClusterProfile".to_owned());
            }
            sorted.into_iter().try_for_each(|cluster| add(cluster, Vec::new()))?;
        } else {
            self.clusters.iter().try_for_each(|cluster| add(cluster, Vec::new()))?;
        }
        Ok(targets)
    }
}

/// Checks the cluster of `target`.
async fn check_one(
    target: &CheckTarget,
    ways: &Ways,
    hub: Option<&str>,
    (releases, library): (&ReleaseArgs, &Library),
    pulls: Option<&Pulls>,
) -> Report {
    let reference = &target.reference;
    let mut report = Report::new(reference.to_string());
    if let Some(reached) = ways.connect(reference, &mut report).await {
        let (client, resources) = (&reached, &target.resources);
        let subject = Subject { client, hub, reference: Some(reference), resources, releases, library, pulls };
        Box::pin(subject.check(&mut report)).await;
    }
    report.complete(false)
}

/// Fails if the release bundle has nothing of a component: the path may be wrong.
fn check_bundle(library: &Library, resources: &[Knative]) -> Result<(), String> {
    for component in Component::ALL {
        let is_used = |one: &Knative| one.component() == component && one.common().manifests.is_empty();
        if resources.iter().any(is_used) {
            library.bundle.versions(component).map_err(|error| error.to_string())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: PreflightArgs,
    }

    fn parsed(line: &[&str]) -> Option<PreflightArgs> {
        Line::try_parse_from([&["x"], line].concat()).ok().map(|line| line.args)
    }

    #[test]
    fn clusters_are_named_in_one_way() {
        let named = parsed(&["fleet-system/east", "fleet-system/west"]).unwrap();
        assert_eq!(named.clusters[1].to_string(), "fleet-system/west");
        assert!(parsed(&["--fleet=prod"]).unwrap().fleet.is_some() && parsed(&["--all"]).unwrap().all);
        assert!(parsed(&[]).unwrap().given().unwrap().is_none());
        for wrong in [&["east"][..], &["a/b", "--all"], &["a/b", "--fleet=prod"], &["--all", "--fleet=prod"]] {
            assert!(parsed(wrong).is_none(), "{wrong:?}");
        }
    }
}
