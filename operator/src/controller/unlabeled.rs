//! Deletes objects of an installation, with those of the Go operator that lack the label of the
//! component. It has the field manager of a library that other operators use, too, so they count
//! only if the release that is installed has them.

use std::collections::BTreeSet;

use knative_operator_shared::api::Knative;
use kube::Client;

use super::context::Context;
use super::go_inventory::go_operator_inventory;
use knative_operator_apply::error::ApplyError;
use knative_operator_apply::inventory::{Entry, Inventory};
use knative_operator_apply::proof::{Proof, UNLABELED};
use knative_operator_apply::remove::{self, Deletion, DeletionProgress};
use knative_operator_objects::{Kinds, ObjectId};

/// Outcome of the deletion of an object.
type Outcome = (ObjectId, Result<Deletion, ApplyError>);

/// Deletes those of `objects` that show `proof`.
pub async fn delete(
    cx: &Context,
    resource: &Knative,
    client: &Client,
    kinds: &Kinds,
    proof: &Proof,
    objects: Vec<(ObjectId, Entry)>,
) -> Vec<Outcome> {
    let mut outcomes = remove::delete(client, kinds, proof, objects).await;
    let left = outcomes.iter().filter(|(_, outcome)| *outcome == Ok(Deletion::Left(UNLABELED)));
    let again = in_release(cx, resource, left.map(|(id, _)| id.clone()).collect()).await;
    if !again.entries.is_empty() {
        outcomes.retain(|(id, _)| !again.entries.contains_key(id));
        let proof = Proof { unlabeled: true, ..proof.clone() };
        outcomes.extend(remove::delete(client, kinds, &proof, again.entries.into_iter().collect()).await);
    }
    outcomes
}

/// Deletes the last phase in `inventory`, as [`remove::delete_last_phase`].
pub async fn delete_last_phase(
    cx: &Context,
    resource: &Knative,
    client: &Client,
    proof: &Proof,
    inventory: &mut Inventory,
) -> DeletionProgress {
    let kinds = Kinds::default();
    let mut removed = remove::delete_last_phase(client, &kinds, proof, inventory).await;
    let left = removed.left.iter().filter(|(_, why)| *why == UNLABELED);
    let mut again = in_release(cx, resource, left.map(|(id, _)| id.clone()).collect()).await;
    if !again.entries.is_empty() {
        removed.left.retain(|(id, _)| !again.entries.contains_key(id));
        let proof = Proof { unlabeled: true, ..proof.clone() };
        let more = remove::delete_last_phase(client, &kinds, &proof, &mut again).await;
        removed.remaining.extend(more.remaining);
        removed.left.extend(more.left);
        removed.refused.extend(more.refused);
        // What is terminating is looked at again.
        inventory.entries.extend(again.entries);
    }
    removed
}

/// Those of `ids` that the installed release has. None if it is not known any more: they are
/// reported as left.
async fn in_release(cx: &Context, resource: &Knative, ids: BTreeSet<ObjectId>) -> Inventory {
    if ids.is_empty() {
        return Inventory::default();
    }
    let mut found = go_operator_inventory(cx, resource).await.unwrap_or_default();
    found.entries.retain(|id, _| ids.contains(id));
    found
}
