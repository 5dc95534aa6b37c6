//! Owner of the installed objects: the custom resource on the local cluster, the anchor ConfigMap
//! on a spoke.

use knative_operator_shared::api::Knative;
use knative_operator_shared::label::{GROUP, VERSION};
use knative_operator_shared::name;
use serde_json::{Value, json};

/// The owner of namespaced objects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Owner {
    /// Its `apiVersion`.
    pub api_version: String,
    /// Its kind.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// Its namespace; an owner reference can't cross namespaces.
    pub namespace: String,
}

impl Owner {
    /// The owner of the objects of `resource`: the resource itself on the local cluster, its anchor
    /// ConfigMap with uid `anchor` on a spoke.
    pub fn of(resource: &Knative, anchor: &str) -> Self {
        let namespace = resource.target_namespace().to_owned();
        if resource.common().cluster_profile_ref.is_some() {
            let name = name::anchor(resource.component(), resource.name());
            return Self {
                api_version: "v1".to_owned(),
                kind: "ConfigMap".to_owned(),
                name,
                uid: anchor.to_owned(),
                namespace,
            };
        }
        Self {
            api_version: format!("{GROUP}/{VERSION}"),
            kind: resource.component().kind().to_owned(),
            name: resource.name().to_owned(),
            uid: resource.meta().uid.clone().unwrap_or_default(),
            namespace,
        }
    }

    /// The owner reference to it.
    pub fn reference(&self) -> Value {
        let Self { api_version, kind, name, uid, .. } = self;
        json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true})
    }
}
