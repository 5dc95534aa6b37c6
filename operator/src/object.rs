//! Which object: identity, kind, digest.

use std::fmt;

use kube::core::{ApiResource, GroupVersionKind, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// What makes an object that object: its version doesn't.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ObjectId {
    /// API group; empty for the core group.
    #[serde(rename = "g", default, skip_serializing_if = "String::is_empty")]
    pub group: String,
    /// Kind.
    #[serde(rename = "k")]
    pub kind: String,
    /// Namespace; empty for cluster-scoped objects.
    #[serde(rename = "ns", default, skip_serializing_if = "String::is_empty")]
    pub namespace: String,
    /// Name.
    #[serde(rename = "n")]
    pub name: String,
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, namespace, name, .. } = self;
        if namespace.is_empty() { write!(f, "{kind} {name}") } else { write!(f, "{kind} {namespace}/{name}") }
    }
}

impl ObjectId {
    /// The identity of `object`, which has a kind and a name.
    pub fn of(object: &Value) -> Self {
        Self {
            group: gvk(object).group,
            kind: text(object, "/kind").to_owned(),
            namespace: text(object, "/metadata/namespace").to_owned(),
            name: text(object, "/metadata/name").to_owned(),
        }
    }
}

/// The group, version and kind of `object`.
pub fn gvk(object: &Value) -> GroupVersionKind {
    let (group, version) = match text(object, "/apiVersion").split_once('/') {
        Some((group, version)) => (group, version),
        None => ("", text(object, "/apiVersion")),
    };
    GroupVersionKind::gvk(group, version, text(object, "/kind"))
}

/// The text at `pointer`; empty if there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The resourceVersion of an object with `meta`, as a number: those of one kind can be compared (KEP-5504).
pub fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or_default()
}

/// A digest of what is applied: the first 128 bits of SHA-256 over a version and the object's JSON, whose keys are sorted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest(String);

impl Digest {
    /// The digest of an object, given as its JSON with sorted keys.
    pub fn of(text: &str) -> Self {
        let hash = Sha256::new_with_prefix("1").chain_update(text).finalize();
        Self(hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect())
    }
}

impl From<String> for Digest {
    /// A digest that was stored.
    fn from(stored: String) -> Self {
        Self(stored)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How a kind is addressed: its resource name and whether it lives in a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kind {
    /// Group, version, kind and resource name.
    pub resource: ApiResource,
    /// Whether it lives in a namespace.
    pub namespaced: bool,
}
