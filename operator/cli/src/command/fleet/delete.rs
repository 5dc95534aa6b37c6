//! `knative-operator fleet delete`: deletes a fleet, after it showed from which clusters that
//! uninstalls, and asked.

use std::collections::BTreeSet;
use std::process::ExitCode;

use knative_operator_rules::is_protected;
use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::patch_as;
use knative_operator_shared::api::Component;
use knative_operator_shared::label::{CONFIRM_REMOVAL, PROTECTED};
use kube::api::{DeleteParams, Patch, Preconditions, PropagationPolicy};
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::super::terminal::confirmed;
use super::{Hub, PROGRAM};

/// Clusters that are shown by name.
const SHOWN: usize = 20;

/// Flags of `fleet delete`.
#[derive(Clone, Debug, clap::Args)]
pub struct DeleteArgs {
    /// Name of the fleet.
    name: String,
    /// Keeps the installations, also with spec.removal.policy Delete: their resources stay, without
    /// the fleet.
    #[arg(long)]
    orphan: bool,
    /// Deletes without asking.
    #[arg(short, long)]
    yes: bool,
}

/// Deletes. Exit status: 0 deleted, 1 declined, 2 error.
pub async fn run(hub: &Hub, args: &DeleteArgs) -> Result<ExitCode, String> {
    // Untyped: what this version can't read can be deleted, too.
    let fleets = hub.untyped("KnativeFleet", "knativefleets");
    let missing = || format!("KnativeFleet {}/{} does not exist", hub.namespace, args.name);
    let fleet = fleets.get_opt(&args.name).await.map_err(|error| error_text(&error))?.ok_or_else(missing)?;
    let name = format!("KnativeFleet {}/{}", hub.namespace, args.name);
    if is_protected(&fleet.metadata) {
        let place = format!("{} -n {}", args.name, hub.namespace);
        return Err(format!(
            "{name} is protected; to delete it, first: kubectl annotate knativefleet {place} {PROTECTED}-"
        ));
    }
    let uid = fleet.metadata.uid.clone();
    let is_deleted = fleet.metadata.deletion_timestamp.is_some();
    let clusters = installed(hub, uid.as_deref()).await?;
    let keeps = args.orphan || fleet.data["spec"]["removal"]["policy"] == "Orphan";
    let recorded = fleet.data["status"]["installed"].as_u64().and_then(|number| usize::try_from(number).ok());
    let count = clusters.len().max(recorded.unwrap_or_default());
    let what = match (keeps, count) {
        (_, 0) => "nothing is installed".to_owned(),
        (true, number) => format!("Knative stays where it is (clusters: {number}), with resources that no fleet owns"),
        (false, number) => format!("Knative is uninstalled (clusters: {number})"),
    };
    if !args.yes {
        let mut named: Vec<_> = clusters.iter().take(SHOWN).map(|cluster| format!("  {cluster}\n")).collect();
        named.extend((count > named.len()).then(|| format!("  and {} others\n", count - named.len())));
        if !confirmed(&format!("{}Delete {name}? {what}. [y/N] ", named.concat()))? {
            return Ok(ExitCode::FAILURE);
        }
    }
    let annotate = async |value: Option<String>| {
        let patch = Patch::Merge(json!({"metadata": {"uid": uid, "annotations": {CONFIRM_REMOVAL: value}}}));
        fleets.patch(&args.name, &patch_as(PROGRAM), &patch).await
    };
    if !keeps {
        annotate(Some(count.to_string())).await.map_err(|error| error_text(&error))?;
    } else if is_deleted {
        // The garbage collector has no time to orphan them any more.
        let patch = Patch::Merge(json!({"metadata": {"uid": uid}, "spec": {"removal": {"policy": "Orphan"}}}));
        fleets.patch(&args.name, &patch_as(PROGRAM), &patch).await.map_err(|error| error_text(&error))?;
    }
    // The deletion may have waited for this only.
    if !is_deleted {
        let params = DeleteParams {
            preconditions: Some(Preconditions { uid: uid.clone(), resource_version: None }),
            propagation_policy: args.orphan.then_some(PropagationPolicy::Orphan),
            ..DeleteParams::default()
        };
        if let Err(error) = fleets.delete(&args.name, &params).await {
            if !keeps {
                // It would confirm the next deletion, too.
                let _ = annotate(None).await;
            }
            return Err(error_text(&error));
        }
    }
    let output = json!({"fleet": args.name, "clusters": clusters, "uninstalls": !keeps});
    hub.print(&format!("{name} is being deleted: {what}\n"), &output);
    Ok(ExitCode::SUCCESS)
}

/// The clusters on which resources of the fleet with `uid` have begun to install something.
async fn installed(hub: &Hub, uid: Option<&str>) -> Result<BTreeSet<String>, String> {
    let has_begun = |(component, resource): &(Component, DynamicObject)| {
        let (meta, installed) = (&resource.metadata, &resource.data["status"]["version"]);
        let mut finalizers = meta.finalizers.iter().flatten();
        !installed.is_null() || finalizers.any(|finalizer| finalizer == component.finalizer())
    };
    let own = hub.resources_of(uid).await?;
    Ok(own.iter().filter(|own| has_begun(own)).map(|(_, resource)| cluster(&resource.data)).collect())
}

/// Namespace and name of the ClusterProfile of `resource`.
pub fn cluster(resource: &Value) -> String {
    let part = |field: &str| resource["spec"]["clusterProfileRef"][field].as_str().unwrap_or_default();
    format!("{}/{}", part("namespace"), part("name"))
}
