//! Makes a cluster equal to a plan, and keeps it so, with as few requests as that takes.
//!
//! [`inventory`] remembers what was applied, [`observer`] sees what is there, [`differ`] decides what to do (pure),
//! [`engine`] does it, phase by phase, [`home`] keeps the inventory on the cluster itself, [`remove`] takes it all away.

pub mod differ;
pub mod engine;
pub mod home;
pub mod inventory;
pub mod observer;
pub mod remove;
pub mod throttle;

use kube::Api;
use kube::Client;
use kube::core::{DynamicObject, PartialObjectMeta};

use crate::object::{Kind, ObjectId};

/// Objects of `kind`, where `id` lives, of which only the metadata is read.
pub fn api(client: &Client, kind: &Kind, id: &ObjectId) -> Api<PartialObjectMeta<DynamicObject>> {
    if kind.namespaced && !id.namespace.is_empty() {
        Api::namespaced_with(client.clone(), &id.namespace, &kind.resource)
    } else {
        Api::all_with(client.clone(), &kind.resource)
    }
}
