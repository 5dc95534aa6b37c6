//! `knative-operator fleet delete`: deletes a fleet, after it showed from which clusters that
//! uninstalls, and asked.

use std::collections::BTreeSet;
use std::process::ExitCode;

use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::patch_as;
use knative_operator_shared::api::fleet::RemovalPolicy;
use knative_operator_shared::api::{Knative, KnativeEventing, KnativeFleet, KnativeServing};
use knative_operator_shared::label::CONFIRM_REMOVAL;
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, Preconditions, PropagationPolicy};
use serde_json::json;

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
    let fleet = hub.fleet(&args.name).await?;
    let clusters = installed(hub, &fleet).await?;
    let keeps = args.orphan || fleet.spec.removal.policy == RemovalPolicy::Orphan;
    let selected = fleet.status.as_ref().and_then(|status| usize::try_from(status.clusters).ok()).unwrap_or_default();
    let count = clusters.len().max(selected);
    let what = match (keeps, clusters.len()) {
        (_, 0) => "nothing is installed".to_owned(),
        (true, number) => format!("Knative stays on {number} clusters, with resources that no fleet owns"),
        (false, number) => format!("Knative is uninstalled from {number} clusters"),
    };
    let name = format!("KnativeFleet {}/{}", hub.namespace, args.name);
    if !args.yes {
        let mut named: Vec<_> = clusters.iter().take(SHOWN).map(|cluster| format!("  {cluster}\n")).collect();
        named.extend((clusters.len() > SHOWN).then(|| format!("  and {} others\n", clusters.len() - SHOWN)));
        if !confirmed(&format!("{}Delete {name}? {what}. [y/N] ", named.concat()))? {
            return Ok(ExitCode::FAILURE);
        }
    }
    let fleets = hub.untyped("KnativeFleet", "knativefleets");
    if !keeps {
        let metadata = json!({"uid": fleet.metadata.uid, "annotations": {CONFIRM_REMOVAL: count.to_string()}});
        let patch = Patch::Merge(json!({"metadata": metadata}));
        fleets.patch(&args.name, &patch_as(PROGRAM), &patch).await.map_err(|error| error_text(&error))?;
    }
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: fleet.metadata.uid, resource_version: None }),
        propagation_policy: args.orphan.then_some(PropagationPolicy::Orphan),
        ..DeleteParams::default()
    };
    fleets.delete(&args.name, &params).await.map_err(|error| error_text(&error))?;
    hub.print(
        &format!("{name} is being deleted: {what}\n"),
        &json!({"fleet": args.name, "clusters": clusters, "uninstalls": !keeps}),
    );
    Ok(ExitCode::SUCCESS)
}

/// The clusters on which resources of `fleet` have installed something.
async fn installed(hub: &Hub, fleet: &KnativeFleet) -> Result<BTreeSet<String>, String> {
    let all = ListParams::default();
    let servings: Api<KnativeServing> = Api::namespaced(hub.client.clone(), &hub.namespace);
    let eventings: Api<KnativeEventing> = Api::namespaced(hub.client.clone(), &hub.namespace);
    let servings = servings.list(&all).await.map_err(|error| error_text(&error))?;
    let eventings = eventings.list(&all).await.map_err(|error| error_text(&error))?;
    let resources = servings.into_iter().map(Knative::Serving).chain(eventings.into_iter().map(Knative::Eventing));
    let is_own = |resource: &Knative| {
        let mut owners = resource.meta().owner_references.iter().flatten();
        owners.any(|owner| Some(&owner.uid) == fleet.metadata.uid.as_ref())
    };
    let own = resources.filter(|resource| is_own(resource) && resource.has_installed());
    Ok(own.filter_map(|resource| Some(resource.common().cluster_profile_ref.as_ref()?.to_string())).collect())
}
