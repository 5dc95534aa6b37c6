//! Objects as compact JSON: a tree of values takes many times the room, and hardly any object is looked into after it was
//! rendered.

use std::sync::{Arc, OnceLock};

use knative_operator_shared::label::APP_NAME;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use crate::object::{Digest, Kind, ObjectId, gvk, text};

/// An object that many may hold, with what is asked of it often.
#[derive(Clone, Debug)]
pub struct Packed(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: ObjectId,
    gvk: GroupVersionKind,
    text: Box<str>,
    digest: OnceLock<Digest>,
    definition: Option<Definition>,
}

/// What a CustomResourceDefinition says.
#[derive(Debug)]
pub struct Definition {
    /// The kinds that it defines, one a version, and how they are addressed.
    pub kinds: Vec<(GroupVersionKind, Kind)>,
    /// Its label `app.kubernetes.io/name`; empty without.
    pub part_of: String,
    /// The namespace of its conversion webhook, if it has one.
    pub conversion: Option<String>,
}

impl Packed {
    /// Packs `object`.
    pub fn new(object: &Value) -> Self {
        let gvk = gvk(object);
        let definition = (gvk.kind == "CustomResourceDefinition").then(|| Definition::of(object));
        let text = object.to_string().into_boxed_str();
        Self(Arc::new(Inner { id: ObjectId::of(object), gvk, text, digest: OnceLock::new(), definition }))
    }

    /// Which object it is.
    pub fn id(&self) -> &ObjectId {
        &self.0.id
    }

    /// Its group, version and kind.
    pub fn gvk(&self) -> &GroupVersionKind {
        &self.0.gvk
    }

    /// The object as compact JSON, its keys sorted.
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The digest of the object, made once.
    pub fn digest(&self) -> Digest {
        *self.0.digest.get_or_init(|| Digest::of(&self.0.text))
    }

    /// What it says if it is a CustomResourceDefinition.
    pub fn definition(&self) -> Option<&Definition> {
        self.0.definition.as_ref()
    }

    /// The object.
    pub fn open(&self) -> Value {
        // It was written by the same library, out of a value.
        serde_json::from_str(&self.0.text).unwrap_or_default()
    }
}

impl Definition {
    fn of(crd: &Value) -> Self {
        let (group, kind, plural) =
            (text(crd, "/spec/group"), text(crd, "/spec/names/kind"), text(crd, "/spec/names/plural"));
        let namespaced = text(crd, "/spec/scope") == "Namespaced";
        let versions = crd.pointer("/spec/versions").and_then(Value::as_array).into_iter().flatten();
        let kinds = versions.map(|version| {
            let gvk = GroupVersionKind::gvk(group, text(version, "/name"), kind);
            let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
            (gvk, Kind { resource, namespaced })
        });
        let conversion = crd.pointer("/spec/conversion/webhook/clientConfig/service/namespace");
        let part_of = crd["metadata"]["labels"][APP_NAME].as_str().unwrap_or_default().to_owned();
        Self {
            kinds: kinds.collect(),
            part_of,
            conversion: conversion.map(|n| n.as_str().unwrap_or_default().to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_is_packed_is_opened_again() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "b", "namespace": "a"}, "spec": {"n": 1.5, "t": "\"ü\n"}});
        let packed = Packed::new(&object);
        assert_eq!(packed.open(), object);
        assert_eq!((packed.id(), packed.gvk()), (&ObjectId::of(&object), &gvk(&object)));
        assert!(packed.definition().is_none());
        assert_eq!(packed.digest(), Packed::new(&object).digest());
        assert_ne!(packed.digest(), Packed::new(&json!({"kind": "X"})).digest());
    }

    #[test]
    fn a_definition_says_how_its_kinds_are_addressed() {
        let crd = json!({"kind": "CustomResourceDefinition", "metadata": {"name": "xs.g", "labels": {APP_NAME: "knative-serving"}}, "spec": {
            "group": "g", "scope": "Namespaced", "names": {"kind": "X", "plural": "xs"}, "versions": [{"name": "v1"}, {"name": "v2"}],
            "conversion": {"webhook": {"clientConfig": {"service": {"namespace": "n"}}}}}});
        let packed = Packed::new(&crd);
        let definition = packed.definition().unwrap();
        assert_eq!((definition.part_of.as_str(), definition.conversion.as_deref()), ("knative-serving", Some("n")));
        let (gvk, kind) = &definition.kinds[1];
        assert_eq!(
            (gvk, kind.resource.plural.as_str(), kind.namespaced),
            (&GroupVersionKind::gvk("g", "v2", "X"), "xs", true)
        );
    }
}
