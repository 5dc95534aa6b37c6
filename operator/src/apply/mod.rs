//! Makes a cluster equal to a plan, and keeps it so, with as few requests as that takes.
//!
//! [`inventory`] remembers what was applied, [`observer`] sees what is there ([`seen`], by [`watch`]), [`differ`] decides what to do (pure),
//! [`engine`] does it, phase by phase, [`home`] keeps the inventory on the cluster itself, [`remove`] takes it all away.

pub mod differ;
pub mod engine;
pub mod home;
pub mod inventory;
pub mod observer;
mod ownership;
pub mod preserve;
pub mod remove;
pub mod seen;
mod served;
mod takeover;
pub mod throttle;
mod watch;

use kube::Api;
use kube::Client;
use kube::core::{DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::discovery::Scope;

use crate::kinds::Kinds;
use crate::object::{Kind, ObjectId};

/// Objects written or deleted at once on one cluster, of those that go together.
const CONCURRENCY: usize = 32;

/// How `gvk` is addressed, asking the cluster where `kinds` doesn't know; none if it has no such kind.
pub async fn address(client: &Client, kinds: &Kinds, gvk: &GroupVersionKind) -> kube::Result<Option<Kind>> {
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

/// Objects of `kind`, where `id` lives.
pub fn api(client: &Client, kind: &Kind, id: &ObjectId) -> Objects {
    if kind.namespaced && !id.namespace.is_empty() {
        Api::namespaced_with(client.clone(), &id.namespace, &kind.resource)
    } else {
        Api::all_with(client.clone(), &kind.resource)
    }
}
