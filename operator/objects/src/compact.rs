//! Objects as compact JSON. A tree of values takes several times the memory, and few objects are
//! read again after rendering.

use std::sync::{Arc, OnceLock};

use knative_operator_shared::label::APP_NAME;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use super::digest::Digest;
use super::identity::{ObjectId, gvk, text};
use super::kind::Kind;

/// A shared object in compact form, with its identity, digest and CRD facts at hand.
#[derive(Clone, Debug)]
pub struct CompactObject(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    id: ObjectId,
    gvk: GroupVersionKind,
    text: Box<str>,
    digest: OnceLock<Digest>,
    definition: Option<Definition>,
}

/// Facts of a CustomResourceDefinition.
#[derive(Debug)]
pub struct Definition {
    /// The kinds that it defines, one per version.
    pub kinds: Vec<(GroupVersionKind, Kind)>,
    /// Its label `app.kubernetes.io/name`; empty without.
    pub part_of: String,
    /// Namespace of its conversion webhook, if it has one.
    pub conversion_namespace: Option<String>,
}

impl CompactObject {
    /// Serializes `object`.
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

    /// Digest of the object, computed once.
    pub fn digest(&self) -> Digest {
        *self.0.digest.get_or_init(|| Digest::of(&self.0.text))
    }

    /// Facts of the definition, if it is a CustomResourceDefinition.
    pub fn definition(&self) -> Option<&Definition> {
        self.0.definition.as_ref()
    }

    /// Parses the object.
    pub fn parse(&self) -> Value {
        // The same library wrote it from a value, so it parses.
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
        let conversion_namespace = crd.pointer("/spec/conversion/webhook/clientConfig/service/namespace");
        let part_of = crd["metadata"]["labels"][APP_NAME].as_str().unwrap_or_default().to_owned();
        Self {
            kinds: kinds.collect(),
            part_of,
            conversion_namespace: conversion_namespace.map(|n| n.as_str().unwrap_or_default().to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn compact_object_round_trips() {
        let object = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "b", "namespace": "a"}, "spec": {"n": 1.5, "t": "\"ü\n"}});
        let compact = CompactObject::new(&object);
        assert_eq!(compact.parse(), object);
        assert_eq!((compact.id(), compact.gvk()), (&ObjectId::of(&object), &gvk(&object)));
        assert!(compact.definition().is_none());
        assert_eq!(compact.digest(), CompactObject::new(&object).digest());
        assert_ne!(compact.digest(), CompactObject::new(&json!({"kind": "X"})).digest());
    }

    #[test]
    fn definition_lists_its_kinds() {
        let crd = json!({"kind": "CustomResourceDefinition", "metadata": {"name": "xs.g", "labels": {APP_NAME: "knative-serving"}}, "spec": {
            "group": "g", "scope": "Namespaced", "names": {"kind": "X", "plural": "xs"}, "versions": [{"name": "v1"}, {"name": "v2"}],
            "conversion": {"webhook": {"clientConfig": {"service": {"namespace": "n"}}}}}});
        let compact = CompactObject::new(&crd);
        let definition = compact.definition().unwrap();
        assert_eq!(
            (definition.part_of.as_str(), definition.conversion_namespace.as_deref()),
            ("knative-serving", Some("n"))
        );
        let (gvk, kind) = &definition.kinds[1];
        assert_eq!(
            (gvk, kind.resource.plural.as_str(), kind.namespaced),
            (&GroupVersionKind::gvk("g", "v2", "X"), "xs", true)
        );
    }
}
