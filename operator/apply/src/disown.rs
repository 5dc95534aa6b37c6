//! Removes owner references, so that objects outlive their owner.

use knative_operator_runtime::identity::patch_as;
use knative_operator_shared::label::FIELD_MANAGER;
use kube::Client;
use kube::api::Patch;
use serde_json::json;

use super::error::ApplyError;
use super::inventory::Entry;
use super::{Objects, api, resolve_applied};
use knative_operator_objects::{Kinds, ObjectId};

/// Attempts to change an object that others change all the time.
const ATTEMPTS: usize = 5;

/// Removes the owner with `uid` from the object `id`, if it has that owner.
pub async fn disown(client: &Client, kinds: &Kinds, uid: &str, id: &ObjectId, entry: &Entry) -> Result<(), ApplyError> {
    let Some(kind) = resolve_applied(client, kinds, id, &entry.version).await? else { return Ok(()) };
    let api = api(client, &kind, id);
    let mut outcome = disown_read(&api, uid, &id.name).await;
    for _ in 1..ATTEMPTS {
        match &outcome {
            Err(kube::Error::Api(status)) if status.code == 409 => outcome = disown_read(&api, uid, &id.name).await,
            _ => break,
        }
    }
    match outcome {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other.map_err(|e| ApplyError::failed(format!("remove the owner reference of {id}"), &e)),
    }
}

/// Reads the object and removes the owner, if the object has not changed since.
async fn disown_read(api: &Objects, uid: &str, name: &str) -> kube::Result<()> {
    let Some(found) = api.get_metadata_opt(name).await? else { return Ok(()) };
    let owners = found.metadata.owner_references.unwrap_or_default();
    let others: Vec<_> = owners.iter().filter(|owner| owner.uid != uid).collect();
    if others.len() == owners.len() {
        return Ok(());
    }
    let metadata = json!({"resourceVersion": found.metadata.resource_version, "ownerReferences": others});
    api.patch_metadata(name, &patch_as(FIELD_MANAGER), &Patch::Merge(json!({"metadata": metadata}))).await.map(drop)
}
