//! Who owns the objects: the custom resource locally, the anchor ConfigMap on a spoke.

use serde_json::{Value, json};

use super::Context;
use crate::object::text;

/// An owner of namespaced objects.
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
}

impl Owner {
    /// The reference to it, as its objects carry it.
    pub fn reference(&self) -> Value {
        let Self { api_version, kind, name, uid } = self;
        json!({"apiVersion": api_version, "kind": kind, "name": name, "uid": uid, "controller": true, "blockOwnerDeletion": true})
    }
}

/// Makes the owner the only owner of a namespaced object.
pub fn set(object: &mut Value, cx: &Context<'_>) -> Result<(), String> {
    if !text(object, "/metadata/namespace").is_empty() {
        object["metadata"]["ownerReferences"] = json!([cx.owner.reference()]);
    }
    Ok(())
}
