//! Takes away what the inventory lists: in reverse phases, CRDs never.

use futures::StreamExt;
use kube::Client;
use kube::api::{DeleteParams, PropagationPolicy};
use kube::core::GroupVersionKind;

use super::inventory::{Entry, Inventory};
use super::{CONCURRENCY, address, api};
use crate::kinds::Kinds;
use crate::object::ObjectId;
use crate::plan::Phase;

/// How far a removal has come.
#[derive(Debug, Default)]
pub struct Removed {
    /// What is still there, being deleted.
    pub remaining: Vec<ObjectId>,
    /// What can't be deleted, and why.
    pub refused: Vec<(ObjectId, String)>,
}

/// Whether an object is left where it is for ever: data of users hangs on CRDs; Namespaces are their home's to remove.
pub fn kept(id: &ObjectId) -> bool {
    matches!(id.kind.as_str(), "CustomResourceDefinition" | "Namespace")
}

/// Deletes what is left of the last phase in `inventory`, and forgets what is gone. Call it again until nothing remains.
pub async fn step(client: &Client, kinds: &Kinds, inventory: &mut Inventory) -> Removed {
    let mut removed = Removed::default();
    while let Some(last) = inventory.0.iter().filter(|(id, _)| !kept(id)).map(turn).max() {
        let due = inventory.0.iter().filter(|(id, entry)| !kept(id) && turn((id, entry)) == last);
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

/// When an object is removed: the highest first. Aggregated ClusterRoles go before those that they take their rules from:
/// when one of those goes, the control plane writes the aggregate again, and would bring it back.
fn turn((id, entry): (&ObjectId, &Entry)) -> (Phase, bool) {
    (Phase::of(&id.group, &id.kind), entry.aggregated)
}

/// Deletes `objects`; true for each that is gone.
pub async fn delete(
    client: &Client,
    kinds: &Kinds,
    objects: Vec<(ObjectId, Entry)>,
) -> Vec<(ObjectId, Result<bool, String>)> {
    let deletes = objects.into_iter().map(|(id, entry)| async move {
        let outcome = one(client, kinds, &id, &entry).await;
        (id, outcome)
    });
    futures::stream::iter(deletes).buffer_unordered(CONCURRENCY).collect().await
}

async fn one(client: &Client, kinds: &Kinds, id: &ObjectId, entry: &Entry) -> Result<bool, String> {
    let gvk = GroupVersionKind::gvk(&id.group, &entry.version, &id.kind);
    // Where there is no such kind there is no such object.
    let Some(kind) = address(client, kinds, &gvk).await.map_err(|e| knative_operator_runtime::words(&e))? else {
        return Ok(true);
    };
    // Pods go before their Deployment does, so that what is gone is really gone.
    let policy = if matches!(id.group.as_str(), "apps" | "batch") {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    };
    let params = DeleteParams { propagation_policy: Some(policy), ..DeleteParams::default() };
    let deleted = api(client, &kind, id).delete(&id.name, &params).await;
    match deleted {
        // An object without finalizers is answered with a Status: it is gone. An aggregate may be brought back by a write
        // that was under way: it is gone when it isn't there the next time.
        Ok(either) => Ok(either.is_right() && !entry.aggregated),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
        Err(error) => Err(knative_operator_runtime::words(&error)),
    }
}
