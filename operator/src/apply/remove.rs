//! Deletes the objects of an inventory in reverse phases, except for CRDs.

use futures::StreamExt;
use kube::Client;
use kube::api::{DeleteParams, PropagationPolicy};
use kube::core::GroupVersionKind;

use super::inventory::{Entry, Inventory};
use super::{CONCURRENCY, api, resolve_kind};
use crate::object::Kinds;
use crate::object::ObjectId;
use crate::render::plan::Phase;

/// Progress of a deletion.
#[derive(Debug, Default)]
pub struct DeletionProgress {
    /// Objects that are terminating.
    pub remaining: Vec<ObjectId>,
    /// Objects that can't be deleted, with the reason.
    pub refused: Vec<(ObjectId, String)>,
}

/// Whether an object is never deleted here: custom resources of users depend on CRDs, and the
/// inventory store deletes the namespace.
pub fn is_retained(id: &ObjectId) -> bool {
    matches!(id.kind.as_str(), "CustomResourceDefinition" | "Namespace")
}

/// Deletes the last phase in `inventory` and drops the entries of deleted objects. Call it again
/// until nothing remains.
pub async fn delete_last_phase(client: &Client, kinds: &Kinds, inventory: &mut Inventory) -> DeletionProgress {
    let mut removed = DeletionProgress::default();
    while let Some(last) = inventory.0.iter().filter(|(id, _)| !is_retained(id)).map(deletion_order).max() {
        let due = inventory.0.iter().filter(|(id, entry)| !is_retained(id) && deletion_order((id, entry)) == last);
        let due = due.map(|(id, entry)| (id.clone(), entry.clone())).collect();
        for (id, outcome) in delete(client, kinds, due).await {
            match outcome {
                Ok(true) => drop(inventory.0.remove(&id)),
                Ok(false) => removed.remaining.push(id),
                Err(why) => removed.refused.push((id, why)),
            }
        }
        if !removed.remaining.is_empty() || !removed.refused.is_empty() {
            break;
        }
    }
    removed
}

/// Order of deletion, highest first. Aggregated ClusterRoles go before the roles that they
/// aggregate: when one of those goes, the control plane writes the aggregate again and would
/// recreate it.
fn deletion_order((id, entry): (&ObjectId, &Entry)) -> (Phase, bool) {
    (Phase::of(&id.group, &id.kind), entry.aggregated)
}

/// Deletes `objects`; true for each that is gone.
pub async fn delete(
    client: &Client,
    kinds: &Kinds,
    objects: Vec<(ObjectId, Entry)>,
) -> Vec<(ObjectId, Result<bool, String>)> {
    let deletes = objects.into_iter().map(|(id, entry)| async move {
        let outcome = delete_object(client, kinds, &id, &entry).await;
        (id, outcome)
    });
    futures::stream::iter(deletes).buffer_unordered(CONCURRENCY).collect().await
}

async fn delete_object(client: &Client, kinds: &Kinds, id: &ObjectId, entry: &Entry) -> Result<bool, String> {
    let gvk = GroupVersionKind::gvk(&id.group, &entry.version, &id.kind);
    // No such kind, so no such object.
    let Some(kind) = resolve_kind(client, kinds, &gvk).await.map_err(|e| knative_operator_runtime::error_text(&e))?
    else {
        return Ok(true);
    };
    // Foreground deletion: a Deployment stays until its Pods are gone.
    let policy = if matches!(id.group.as_str(), "apps" | "batch") {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    };
    let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
    let deleted = api(client, &kind, id).delete(&id.name, &params).await;
    match deleted {
        // The API server answers with a Status if the object had no finalizers and is gone. The
        // control plane may recreate an aggregated role with a write under way, so that one is gone
        // when the next try finds nothing.
        Ok(either) => Ok(either.is_right() && !entry.aggregated),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
        Err(error) => Err(knative_operator_runtime::error_text(&error)),
    }
}
