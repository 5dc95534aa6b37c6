//! Which object: identity, kind, digest.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use kube::core::{ApiResource, GroupVersionKind, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

/// What makes an object that object: its version doesn't.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Id {
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

/// An [`Id`] that many may hold: there are as many as objects in the whole fleet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectId(Arc<Id>);

impl Deref for ObjectId {
    type Target = Id;

    fn deref(&self) -> &Id {
        &self.0
    }
}

impl Borrow<Id> for ObjectId {
    fn borrow(&self) -> &Id {
        &self.0
    }
}

impl From<Id> for ObjectId {
    fn from(id: Id) -> Self {
        Self(Arc::new(id))
    }
}

impl fmt::Display for ObjectId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Id { kind, namespace, name, .. } = &**self;
        if namespace.is_empty() { write!(f, "{kind} {name}") } else { write!(f, "{kind} {namespace}/{name}") }
    }
}

impl ObjectId {
    /// The identity of `object`, which has a kind and a name.
    pub fn of(object: &Value) -> Self {
        let text = |pointer: &str| text(object, pointer);
        Self::new(&gvk(object).group, text("/kind"), text("/metadata/namespace"), text("/metadata/name"))
    }

    /// An object of `kind` in API group `group` (empty for the core group) and `namespace` (empty for what lives in none).
    pub fn new(group: &str, kind: &str, namespace: &str, name: &str) -> Self {
        Id { group: group.to_owned(), kind: kind.to_owned(), namespace: namespace.to_owned(), name: name.to_owned() }
            .into()
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest(u128);

impl Digest {
    /// The digest of an object, given as its JSON with sorted keys.
    pub fn of(text: &str) -> Self {
        Self::hash(Sha256::new_with_prefix("1").chain_update(text))
    }

    /// The digest of an object with digest `self` that `owner` owns.
    #[must_use]
    pub fn owned(self, owner: &str) -> Self {
        Self::hash(Sha256::new_with_prefix("1").chain_update(self.0.to_be_bytes()).chain_update(owner))
    }

    /// A digest that was stored; none if it is another kind of text.
    pub fn read(stored: &str) -> Option<Self> {
        u128::from_str_radix(stored, 16).ok().map(Self)
    }

    fn hash(hash: Sha256) -> Self {
        Self(hash.finalize().iter().take(16).fold(0, |all, byte| all << 8 | u128::from(*byte)))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
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
