//! What a deletion leaves, and giving up an installation without uninstalling it: a resource with
//! the annotation `operator.knative.dev/on-delete: orphan` is deleted, or its fleet says so.
//!
//! Afterwards, nothing on the cluster depends on the resource, so the garbage collector deletes
//! nothing with it. The next resource with the same name takes the installation up.

use futures::StreamExt;
use knative_operator_rules::is_protected;
use knative_operator_shared::api::Knative;
use knative_operator_shared::label::{ON_DELETE, ORPHAN, PROTECTED, WAIT};
use kube::Client;

use super::context::Context;
use super::deletion_error::DeletionError;
use super::owning_fleet;
use knative_operator_apply::anchor::{InventoryStore, Stored};
use knative_operator_apply::claim::Record;
use knative_operator_apply::disown::disown;
use knative_operator_apply::inventory::{Entry, Inventory};
use knative_operator_apply::store_error::StoreError;
use knative_operator_objects::{InstallationOwner, Kinds};

/// Maximum number of objects that are changed at the same time.
const CONCURRENCY: usize = 16;

/// Whether the deletion of `resource` leaves its installation on the cluster.
pub fn is_requested(resource: &Knative) -> bool {
    resource.annotation(ON_DELETE) == Some(ORPHAN)
}

/// Why `resource` is not uninstalled: its deletion was not asked about, since the webhook was away,
/// or the CustomResourceDefinition was deleted.
pub fn protection(resource: &Knative) -> Option<String> {
    let (plural, namespace, name) = (resource.component().plural(), resource.namespace(), resource.name());
    is_protected(resource.meta()).then(|| {
        format!(
            "the resource is being deleted, but the annotation {PROTECTED} protects it: nothing is uninstalled. To uninstall: \
             kubectl annotate {plural} {name} -n {namespace} {PROTECTED}-. To keep the installation: annotate it with {ON_DELETE}={ORPHAN} \
             before, and create it again afterwards"
        )
    })
}

/// Whether the installation whose anchor is `stored` may own objects: an owner that is not
/// confirmed has applied nothing.
pub fn may_own_objects(stored: Option<&Stored>, has_installed: bool) -> bool {
    stored.map_or(has_installed, |stored| match &stored.anchor.record {
        Record::Owner(owner) => owner.confirmed || owner.adopted,
        Record::Absent | Record::Unreadable => true,
    })
}

/// Whether the deletion of `resource` waits for the users' objects of Knative.
pub fn waits(resource: &Knative) -> bool {
    resource.annotation(ON_DELETE) == Some(WAIT)
}

/// Whether the installation goes with the namespace of the resource: what stayed would give rights
/// to the one that creates the namespace again.
pub async fn is_namespace_terminating(
    cx: &Context,
    resource: &Knative,
    store: &InventoryStore,
) -> Result<bool, StoreError> {
    if store.is_remote() {
        return Ok(false);
    }
    let failed =
        |source| StoreError::Api { what: format!("failed to read Namespace {}", resource.namespace()), source };
    owning_fleet::is_namespace_terminating(&cx.hub, resource.namespace()).await.map_err(failed)
}

/// Why the deletion of `resource` must not go on: its annotation may ask for something that only a
/// newer version knows.
pub fn objection(resource: &Knative) -> Option<String> {
    let value = resource
        .meta()
        .annotations
        .as_ref()?
        .get(ON_DELETE)
        .filter(|value| ![ORPHAN, WAIT].contains(&value.as_str()))?;
    Some(format!(
        "metadata.annotations[{ON_DELETE}] has the unknown value \"{value}\"; set it to \"{ORPHAN}\" or \"{WAIT}\", or remove it to uninstall"
    ))
}

/// Records on the anchor, which is `stored`, that `resource` gives up the installation of
/// `inventory`.
pub async fn release(
    cx: &Context,
    resource: &Knative,
    client: &Client,
    store: &InventoryStore,
    stored: Option<&Stored>,
    mut inventory: Inventory,
) -> Result<(), DeletionError> {
    if stored.is_some_and(|stored| stored.anchor.record == Record::Unreadable) {
        // It is not written.
        inventory.entries.insert(store.id(), Entry { version: "v1".to_owned(), ..Entry::default() });
    }
    // On a spoke, the objects belong to the anchor, which stays.
    if !store.is_remote()
        && let Some(uid) = &resource.meta().uid
    {
        let kinds = &Kinds::default();
        let disowned = inventory
            .entries
            .into_iter()
            .map(|(id, entry)| async move { disown(client, kinds, uid, &id, &entry).await });
        let mut outcomes = std::pin::pin!(futures::stream::iter(disowned).buffer_unordered(CONCURRENCY));
        while let Some(outcome) = outcomes.next().await {
            outcome?;
        }
    }
    let Some(stored) = stored else { return Ok(()) };
    let released = match &stored.anchor.record {
        // Of an earlier version or the Go operator. The next owner looks for others first.
        Record::Absent => Some(InstallationOwner { adopted: true, released: true, ..cx.owner(resource) }),
        Record::Owner(_) | Record::Unreadable => stored.anchor.released(),
    };
    let Some(released) = released else { return Ok(()) };
    store.record(client, stored, &released).await?;
    Ok(())
}
