//! `knative-operator fleet retry` and `fleet skip`: what a rollout does about single clusters.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use knative_operator_fleet::child;
use knative_operator_fleet::outcome::Outcome;
use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::patch_as;
use knative_operator_shared::api::{Component, KnativeFleet};
use knative_operator_shared::label::{FLEET_OUTCOME, FLEET_SKIPPED};
use kube::api::Patch;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::delete::cluster;
use super::{Hub, PROGRAM};

/// Time limit until the operator has observed a change of the fleet.
const OBSERVED: Duration = Duration::from_secs(10);
/// Interval at which the fleet is read until then.
const POLL: Duration = Duration::from_millis(250);

/// Flags of `fleet retry`.
#[derive(Clone, Debug, clap::Args)]
pub struct RetryArgs {
    /// Name of the fleet.
    name: String,
    /// Clusters that failed or are skipped, as NAMESPACE/NAME of their ClusterProfiles. Defaults to
    /// all that failed, and are not skipped.
    clusters: Vec<String>,
}

/// Flags of `fleet skip`.
#[derive(Clone, Debug, clap::Args)]
pub struct SkipArgs {
    /// Name of the fleet.
    name: String,
    /// Clusters, as NAMESPACE/NAME of their ClusterProfiles.
    #[arg(required = true)]
    clusters: Vec<String>,
}

/// A change of a resource of a fleet.
struct Change {
    /// NAMESPACE/NAME of its ClusterProfile.
    cluster: String,
    component: Component,
    name: String,
    /// A JSON patch (RFC 6902).
    patch: Vec<Value>,
}

impl Change {
    /// A change of `resource`, if `operations` has some.
    fn of((component, resource): (Component, &DynamicObject), operations: Vec<Value>) -> Option<Self> {
        let same = json!({"op": "test", "path": "/metadata/uid", "value": resource.metadata.uid});
        (!operations.is_empty()).then(|| Self {
            cluster: cluster(&resource.data),
            component,
            name: resource.metadata.name.clone().unwrap_or_default(),
            patch: [same].into_iter().chain(operations).collect(),
        })
    }
}

/// Lets the failures of the clusters be observed again, as a change of the fleet does for all, and
/// skips them no longer. Until a cluster that failed is Ready, its failure counts, and starts no
/// other cluster.
pub async fn retry(hub: &Hub, args: &RetryArgs) -> Result<ExitCode, String> {
    let fleet = hub.fleet(&args.name).await?;
    let (own, current) = (hub.resources_of(fleet.metadata.uid.as_deref()).await?, rollout(&fleet));
    let is_asked = |change: &Change| args.clusters.is_empty() || args.clusters.contains(&change.cluster);
    let change = |(component, resource): &(Component, DynamicObject)| {
        let mut operations = retried(resource).unwrap_or_default();
        if let Some(skipped) = annotation(resource, FLEET_SKIPPED) {
            // Clusters that are not named are skipped on purpose, if in this rollout.
            let is_skipped = Some(skipped) == current.as_deref();
            if args.clusters.is_empty() && (is_skipped || operations.is_empty()) {
                return None;
            }
            operations.push(changes("test", FLEET_SKIPPED, skipped));
            operations.push(json!({"op": "remove", "path": path(FLEET_SKIPPED)}));
        }
        Change::of((*component, resource), operations)
    };
    let changes: Vec<_> = own.iter().filter_map(change).filter(is_asked).collect();
    if let Some(other) = missing(&args.clusters, &changes) {
        return Err(format!(
            "cluster {other} has not failed in an update of KnativeFleet {}/{}, and is not skipped",
            hub.namespace, args.name
        ));
    }
    write(hub, changes, ("is observed again", "no cluster failed in an update")).await
}

/// Lets the rollout of the fleet leave the clusters as they are, until the next change of what it
/// rolls out, and where.
pub async fn skip(hub: &Hub, args: &SkipArgs) -> Result<ExitCode, String> {
    let started = Instant::now();
    let (fleet, skipped) = loop {
        let fleet = hub.fleet(&args.name).await?;
        if let Some(skipped) = rollout(&fleet) {
            break (fleet, skipped);
        }
        // The status follows a change of the fleet in about a second.
        if started.elapsed() > OBSERVED {
            return Err(format!(
                "KnativeFleet {}/{} has no rollout yet: the operator has not observed it",
                hub.namespace, args.name
            ));
        }
        tokio::time::sleep(POLL).await;
    };
    let own = hub.resources_of(fleet.metadata.uid.as_deref()).await?;
    let change = |(component, resource): &(Component, DynamicObject)| {
        Change::of((*component, resource), vec![changes("add", FLEET_SKIPPED, &skipped)])
    };
    let changes: Vec<_> =
        own.iter().filter_map(change).filter(|change| args.clusters.contains(&change.cluster)).collect();
    if let Some(other) = missing(&args.clusters, &changes) {
        return Err(format!(
            "KnativeFleet {}/{} has no resource for cluster {other} that could record it; to leave the cluster out, change \
             the labels of its ClusterProfile, or spec.placement",
            hub.namespace, args.name
        ));
    }
    write(hub, changes, ("is skipped", "no cluster")).await
}

/// The first of `clusters` that no change is about.
fn missing<'a>(clusters: &'a [String], changes: &[Change]) -> Option<&'a String> {
    clusters.iter().find(|cluster| changes.iter().all(|change| change.cluster != **cluster))
}

/// The rollout of `fleet`, as [`FLEET_SKIPPED`] names it.
fn rollout(fleet: &KnativeFleet) -> Option<String> {
    let status = fleet.status.as_ref().filter(|status| status.observed_generation == fleet.metadata.generation)?;
    Some(child::skipped(status.update_revision.as_deref()?, status.rollout_generation?))
}

fn annotation<'a>(resource: &'a DynamicObject, name: &str) -> Option<&'a str> {
    resource.metadata.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Path of the annotation `name` in a JSON patch.
fn path(name: &str) -> String {
    format!("/metadata/annotations/{}", name.replace('/', "~1"))
}

fn changes(operation: &str, name: &str, value: &str) -> Value {
    json!({"op": operation, "path": path(name), "value": value})
}

/// Lets the failure of `resource` be observed again, if it failed. The status changes all the time;
/// what came of the update must be what was read.
fn retried(resource: &DynamicObject) -> Option<Vec<Value>> {
    let recorded = annotation(resource, FLEET_OUTCOME)?;
    let retried = recorded.parse::<Outcome>().ok()?.retried()?.to_string();
    Some(vec![changes("test", FLEET_OUTCOME, recorded), changes("replace", FLEET_OUTCOME, &retried)])
}

/// Makes the `changes`, and prints what they did, or that there was `nothing`. Those of a cluster
/// come one after another: its update is one.
async fn write(hub: &Hub, mut changes: Vec<Change>, (did, nothing): (&str, &str)) -> Result<ExitCode, String> {
    changes.sort_by(|a, b| a.cluster.cmp(&b.cluster));
    let (mut text, mut written, mut errors) = (String::new(), Vec::new(), Vec::new());
    for Change { cluster, component, name, patch } in changes {
        let kind = component.kind();
        let patched = match serde_json::from_value(Value::Array(patch)) {
            Ok(patch) => hub.components(component).patch(&name, &patch_as(PROGRAM), &Patch::<()>::Json(patch)).await,
            Err(error) => Err(kube::Error::SerdeError(error)),
        };
        match patched {
            Ok(_) => {
                // Writing to a String can't fail.
                let _ = writeln!(text, "{cluster}: {kind} {}/{name} {did}", hub.namespace);
                written.push(json!({"cluster": cluster, "kind": kind, "name": name}));
            }
            Err(error) => errors.push(format!("{kind} {}/{name}: {}", hub.namespace, error_text(&error))),
        }
    }
    if written.is_empty() && errors.is_empty() {
        text = format!("{nothing}\n");
    }
    hub.print(&text, &json!(written));
    if errors.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(errors.join("\n")) }
}
