//! `knative-operator fleet retry`: observes clusters that failed again.

use std::fmt::Write;
use std::process::ExitCode;

use knative_operator_fleet::outcome::Outcome;
use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::patch_as;
use knative_operator_shared::api::Component;
use knative_operator_shared::label::FLEET_OUTCOME;
use kube::api::Patch;
use kube::core::DynamicObject;
use serde_json::json;

use super::delete::cluster;
use super::{Hub, PROGRAM};

/// Flags of `fleet retry`.
#[derive(Clone, Debug, clap::Args)]
pub struct RetryArgs {
    /// Name of the fleet.
    name: String,
    /// Clusters, as NAMESPACE/NAME of their ClusterProfiles. Defaults to all that failed.
    clusters: Vec<String>,
}

/// Lets the failures of the clusters be observed again, as a change of the fleet does for all.
/// Until such a cluster is Ready, its failure counts, and starts no other cluster.
pub async fn run(hub: &Hub, args: &RetryArgs) -> Result<ExitCode, String> {
    let fleet = hub.fleet(&args.name).await?;
    let recorded = |resource: &DynamicObject| resource.metadata.annotations.as_ref()?.get(FLEET_OUTCOME).cloned();
    let failure = |(component, resource): (Component, DynamicObject)| {
        let recorded = recorded(&resource)?;
        let retried = recorded.parse::<Outcome>().ok()?.retried()?;
        Some((cluster(&resource.data), component, resource.metadata, recorded, retried))
    };
    let own = hub.resources_of(fleet.metadata.uid.as_deref()).await?;
    let mut failed: Vec<_> = own.into_iter().filter_map(failure).collect();
    if let Some(other) = args.clusters.iter().find(|cluster| failed.iter().all(|(of, ..)| of != *cluster)) {
        return Err(format!(
            "cluster {other} has not failed in an update of KnativeFleet {}/{}",
            hub.namespace, args.name
        ));
    }
    failed.retain(|(of, ..)| args.clusters.is_empty() || args.clusters.contains(of));
    // The resources of a cluster one after another: its update is tried again as one.
    failed.sort_by(|(a, ..), (b, ..)| a.cmp(b));
    let (mut text, mut retried, mut errors) = (String::new(), Vec::new(), Vec::new());
    for (of, component, meta, recorded, outcome) in failed {
        let (kind, name) = (component.kind(), meta.name.as_deref().unwrap_or_default());
        // The status changes all the time. What came of the update must be what was read.
        let path = format!("/metadata/annotations/{}", FLEET_OUTCOME.replace('/', "~1"));
        let patch = json!([{"op": "test", "path": "/metadata/uid", "value": meta.uid},
            {"op": "test", "path": path, "value": recorded},
            {"op": "replace", "path": path, "value": outcome.to_string()}]);
        let patched = match serde_json::from_value(patch) {
            Ok(patch) => hub.components(component).patch(name, &patch_as(PROGRAM), &Patch::<()>::Json(patch)).await,
            Err(error) => Err(kube::Error::SerdeError(error)),
        };
        match patched {
            Ok(_) => {
                // Writing to a String can't fail.
                let _ = writeln!(text, "{of}: {kind} {}/{name} is observed again", hub.namespace);
                retried.push(json!({"cluster": of, "kind": kind, "name": name}));
            }
            Err(error) => errors.push(format!("{kind} {}/{name}: {}", hub.namespace, error_text(&error))),
        }
    }
    if retried.is_empty() && errors.is_empty() {
        "no cluster failed in an update\n".clone_into(&mut text);
    }
    hub.print(&text, &json!(retried));
    if errors.is_empty() { Ok(ExitCode::SUCCESS) } else { Err(errors.join("\n")) }
}
