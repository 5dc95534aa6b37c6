//! Identity of an object.

use std::borrow::Borrow;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

use kube::core::{GroupVersionKind, ObjectMeta};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Identity of an object: group, kind, namespace and name, without the API version.
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

/// A shared [`Id`]: the fleet has as many as it has objects.
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

    /// Identity from its parts. `group` is empty for the core group, `namespace` for cluster-scoped
    /// objects.
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

/// The string at the JSON pointer `pointer`; empty if there is none.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The resourceVersion in `meta` as a number; resourceVersions of one kind can be compared
/// (KEP-5504).
pub fn version(meta: &ObjectMeta) -> u64 {
    meta.resource_version.as_deref().and_then(|v| v.parse().ok()).unwrap_or_default()
}
