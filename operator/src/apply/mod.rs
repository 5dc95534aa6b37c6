//! Makes a cluster equal to a plan with as few requests as possible, and repairs drift.
//!
//! [`inventory`] lists what was applied, [`observer`] follows the cluster by one [`watch`] per kind
//! and records it in [`observed`], [`differ`] decides about an object (pure), [`engine`] orders the
//! writes by phase, [`write`] applies one object, [`anchor`] stores the inventory on the cluster,
//! [`remove`] deletes it all.

pub mod anchor;
pub mod differ;
pub mod engine;
pub mod inventory;
mod managed_fields;
pub mod observed;
pub mod observer;
mod ownership;
pub mod preserve;
mod records;
pub mod remove;
mod served;
mod takeover;
pub mod target;
pub mod throttle;
pub mod update_strategy;
pub mod watch;
mod write;

use kube::Api;
use kube::Client;
use kube::core::{DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::discovery::Scope;

use crate::object::Kinds;
use crate::object::{Kind, ObjectId};

/// Concurrent writes or deletions on one cluster within a phase.
const CONCURRENCY: usize = 32;

/// Resource name and scope of `gvk`, from `kinds` or by discovery; `None` if the cluster lacks the
/// kind.
pub async fn resolve_kind(client: &Client, kinds: &Kinds, gvk: &GroupVersionKind) -> kube::Result<Option<Kind>> {
    if let Some(kind) = kinds.get(gvk) {
        return Ok(Some(kind));
    }
    match kube::discovery::pinned_kind(client, gvk).await {
        Ok((resource, capabilities)) => {
            Ok(Some(Kind { resource, namespaced: capabilities.scope == Scope::Namespaced }))
        }
        Err(kube::Error::Discovery(_)) => Ok(None),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(error),
    }
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
