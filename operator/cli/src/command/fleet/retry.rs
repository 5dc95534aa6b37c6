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
    #[arg(value_parser = reference)]
    clusters: Vec<String>,
}

/// Flags of `fleet skip`.
#[derive(Clone, Debug, clap::Args)]
pub struct SkipArgs {
    /// Name of the fleet.
    name: String,
    /// Clusters, as NAMESPACE/NAME of their ClusterProfiles.
    #[arg(required = true, value_parser = reference)]
    clusters: Vec<String>,
}

/// `text` if it is NAMESPACE/NAME of a ClusterProfile.
pub fn reference(text: &str) -> Result<String, String> {
    let is_name = |part: &str| !part.is_empty() && !part.contains('/');
    match text.split_once('/') {
        Some((namespace, name)) if is_name(namespace) && is_name(name) => Ok(text.to_owned()),
        _ => Err("name a ClusterProfile as NAMESPACE/NAME, such as fleet-system/eu-1".to_owned()),
    }
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

/// Lets the failures of the clusters be observed again, as another rollout does for all, and skips
/// them no longer. Until a cluster that failed is Ready, its failure counts, and starts no other
/// cluster.
pub async fn retry(hub: &Hub, args: &RetryArgs) -> Result<ExitCode, String> {
    let (fleet, current) = if args.clusters.is_empty() {
        // Right after a change of the fleet, it is not known which skips are those of its rollout.
        let (fleet, current) = observed(hub, &args.name, "name the clusters, or try again").await?;
        (fleet, Some(current))
    } else {
        (hub.fleet(&args.name).await?, None)
    };
    let own = hub.resources_of(fleet.metadata.uid.as_deref()).await?;
    let is_asked = |change: &Change| args.clusters.is_empty() || args.clusters.contains(&change.cluster);
    let change = |(component, resource): &(Component, DynamicObject)| {
        Change::of((*component, resource), retries(resource, current.as_deref()))
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
    let (fleet, skipped) = observed(hub, &args.name, "try again").await?;
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

/// The fleet called `name` and its rollout, once the operator has observed its last change. `fix`:
/// what else helps.
async fn observed(hub: &Hub, name: &str, fix: &str) -> Result<(KnativeFleet, String), String> {
    let started = Instant::now();
    loop {
        let fleet = hub.fleet(name).await?;
        if let Some(rollout) = rollout(&fleet) {
            return Ok((fleet, rollout));
        }
        // The status follows a change of the fleet in about a second.
        if started.elapsed() > OBSERVED {
            let why = unobserved(&fleet);
            return Err(format!("KnativeFleet {}/{name}: {why}; {fix}", hub.namespace));
        }
        tokio::time::sleep(POLL).await;
    }
}

/// Why `fleet` has no [`rollout`].
fn unobserved(fleet: &KnativeFleet) -> String {
    let generation = fleet.metadata.generation.unwrap_or_default();
    if is_observed(fleet) {
        return "it has no rollout yet".to_owned();
    }
    format!("the operator has not observed generation {generation} of the fleet yet")
}

/// Whether the status describes the last change of `fleet`.
fn is_observed(fleet: &KnativeFleet) -> bool {
    fleet.status.as_ref().is_some_and(|status| status.observed_generation == fleet.metadata.generation)
}

/// The rollout of `fleet`, as [`FLEET_SKIPPED`] names it.
fn rollout(fleet: &KnativeFleet) -> Option<String> {
    let status = fleet.status.as_ref().filter(|_| is_observed(fleet))?;
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

/// What lets the cluster of `resource` be tried again, in a JSON patch; nothing if it did not fail
/// and is not skipped. If nobody named it, a cluster that the rollout `current` skips stays so.
fn retries(resource: &DynamicObject, current: Option<&str>) -> Vec<Value> {
    let mut operations = retried(resource).unwrap_or_default();
    if let Some(skipped) = annotation(resource, FLEET_SKIPPED) {
        if current.is_some_and(|current| skipped == current || operations.is_empty()) {
            return Vec::new();
        }
        operations.push(changes("test", FLEET_SKIPPED, skipped));
        operations.push(json!({"op": "remove", "path": path(FLEET_SKIPPED)}));
    }
    operations
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_that_nobody_names_stays_skipped() {
        let resource = |outcome: &str, skipped: Option<&str>| -> DynamicObject {
            let mut annotations = json!({FLEET_OUTCOME: outcome});
            if let Some(skipped) = skipped {
                annotations[FLEET_SKIPPED] = json!(skipped);
            }
            let resource = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
                "metadata": {"name": "a", "annotations": annotations}});
            serde_json::from_value(resource).unwrap()
        };
        let (failed, fine) = ("Failed/3/NotReady", "Succeeded");
        for (outcome, skipped, current, expected) in [
            (failed, None, Some("r/1"), 2),
            (fine, None, Some("r/1"), 0),
            (failed, Some("r/1"), Some("r/1"), 0),
            // The skip is of another rollout.
            (failed, Some("q/1"), Some("r/1"), 4),
            (fine, Some("q/1"), Some("r/1"), 0),
            // Somebody named the cluster.
            (failed, Some("r/1"), None, 4),
            (fine, Some("r/1"), None, 2),
        ] {
            let operations = retries(&resource(outcome, skipped), current);
            assert_eq!(operations.len(), expected, "{outcome} {skipped:?} {current:?}: {operations:?}");
        }
    }

    #[test]
    fn rollout_is_known_once_the_last_change_was_observed() {
        let of = |generation: i64, status: Value| -> KnativeFleet {
            let fleet = json!({"metadata": {"name": "f", "generation": generation}, "spec": {"placement": {}}, "status": status});
            serde_json::from_value(fleet).unwrap()
        };
        let status = json!({"observedGeneration": 2, "updateRevision": "r", "rolloutGeneration": 1});
        assert_eq!(rollout(&of(2, status.clone())).as_deref(), Some("r/1"));
        assert_eq!(rollout(&of(3, status.clone())), None);
        assert_eq!(unobserved(&of(3, status)), "the operator has not observed generation 3 of the fleet yet");
        assert_eq!(unobserved(&of(2, json!({"observedGeneration": 2}))), "it has no rollout yet");
    }

    #[test]
    fn clusters_are_named_with_their_namespace() {
        assert_eq!(reference("fleet-system/eu-1").as_deref(), Ok("fleet-system/eu-1"));
        for wrong in ["eu-1", "/eu-1", "fleet-system/", "a/b/c", ""] {
            assert!(reference(wrong).is_err_and(|why| why.contains("NAMESPACE/NAME")), "{wrong}");
        }
    }
}
