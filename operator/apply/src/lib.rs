//! Makes a cluster equal to a plan with as few requests as possible, and repairs drift.
//!
//! [`inventory`] lists what was applied, [`observer`] follows the cluster by one [`watch`] per kind
//! and records it in [`observed`] ([`activity`]: what the watches do), [`differ`] decides about an
//! object (pure), [`engine`] orders the writes by phase, [`write`] applies one object. [`anchor`]
//! stores the inventory and the owner on the cluster; [`claim`] decides who that is. [`remove`]
//! deletes what shows that it belongs to the installation ([`proof`]); [`sweep`] finds that where
//! the inventory is lost, and [`broken_api`] tells what it can't look at. [`pods`] asks why
//! workloads are not available; [`scale`] tells which of them are being scaled. [`error`] has what
//! callers decide by.

pub mod activity;
pub mod anchor;
mod broken_api;
pub mod claim;
pub mod contents;
pub mod differ;
mod discover;
pub mod disown;
pub mod engine;
pub mod error;
pub mod inventory;
mod managed_fields;
pub mod observed;
pub mod observer;
mod ownership;
mod pages;
pub mod places;
pub mod pods;
pub mod preserve;
pub mod proof;
mod records;
pub mod remove;
mod renewal;
mod scale;
pub mod served;
pub mod shown_version;
pub mod store_error;
pub mod sweep;
mod takeover;
pub mod target;
pub mod throttle;
pub mod update_strategy;
pub mod users;
mod users_objects;
pub mod watch;
mod write;

use kube::Api;
use kube::Client;
use kube::core::{DynamicObject, GroupVersionKind, PartialObjectMeta};

use error::ApplyError;
use knative_operator_objects::Kinds;
use knative_operator_objects::{Kind, ObjectId};

/// Concurrent writes or deletions on one cluster within a phase.
const CONCURRENCY: usize = 32;
/// Maximum length of a name in bytes: those of an API server are not longer.
const MAX_NAME: usize = 253;

/// Resource name and scope of `gvk`, from `kinds` or by discovery; `None` if the cluster lacks the
/// kind.
pub async fn resolve_kind(client: &Client, kinds: &Kinds, gvk: &GroupVersionKind) -> kube::Result<Option<Kind>> {
    if let Some(kind) = kinds.get(gvk) {
        return Ok(Some(kind));
    }
    discover::kind(client, gvk).await
}

/// Why it is not known whether the cluster has a kind.
fn undiscovered(kind: &str, group: &str, error: &kube::Error) -> ApplyError {
    let called = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
    ApplyError::failed(format!("look up {called} in the API groups of the cluster"), error)
}

/// A kind in any version that the cluster serves; `None` if it serves none.
async fn resolve_any_version(client: &Client, gvk: &GroupVersionKind) -> kube::Result<Option<Kind>> {
    let groups = discover::groups(client).await?;
    let Some(group) = groups.into_iter().find(|(name, _)| *name == gvk.group) else { return Ok(None) };
    let served = discover::kinds(client, &group).await?;
    Ok(served.into_iter().map(|served| served.kind).find(|kind| kind.resource.kind == gvk.kind))
}

/// The kind of the object `id`, which was applied in `version`, or in another version if the
/// cluster no longer serves that one; `None` if it lacks the kind.
async fn resolve_applied(
    client: &Client,
    kinds: &Kinds,
    id: &ObjectId,
    version: &str,
) -> Result<Option<Kind>, ApplyError> {
    let gvk = GroupVersionKind::gvk(&id.group, version, &id.kind);
    let unknown = |error: kube::Error| undiscovered(&id.kind, &id.group, &error);
    let kind = resolve_kind(client, kinds, &gvk).await.map_err(unknown)?;
    if kind.is_some() || id.group.is_empty() {
        return Ok(kind);
    }
    resolve_any_version(client, &gvk).await.map_err(unknown)
}

/// Objects of one kind, of which only the metadata is read.
pub type Objects = Api<PartialObjectMeta<DynamicObject>>;

/// API of objects of `kind` in the namespace of `id`.
pub fn api(client: &Client, kind: &Kind, id: &ObjectId) -> Objects {
    if kind.namespaced && !id.namespace.is_empty() {
        Api::namespaced_with(client.clone(), &id.namespace, &kind.resource)
    } else {
        Api::all_with(client.clone(), &kind.resource)
    }
}
