//! `spec.patches`: patches of the objects of an installation (knative/operator #2337).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A patch of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ResourcePatch {
    /// The object to patch.
    pub target: PatchTarget,
    /// The patch.
    pub patch: Patch,
}

/// The object that a patch changes: the only object of the installation that matches.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PatchTarget {
    /// API version of the object, such as `apps/v1`.
    #[schemars(length(min = 1))]
    pub api_version: String,
    /// Kind of the object, such as `Deployment`.
    #[schemars(length(min = 1))]
    pub kind: String,
    /// Name of the object, such as `activator`.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Namespace of the object. Required if several namespaces have an object with this API
    /// version, kind and name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
}

/// Type and content of a patch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Patch {
    /// Type of the patch: `json` (RFC 6902), `merge` (RFC 7386) or `strategic` (strategic merge
    /// patch of Kubernetes).
    #[serde(rename = "type")]
    pub type_: PatchType,
    /// The patch, as YAML or JSON.
    #[schemars(length(min = 1))]
    pub content: String,
}

/// Type of a patch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum PatchType {
    /// A JSON patch.
    Json,
    /// A JSON merge patch.
    Merge,
    /// A strategic merge patch.
    #[default]
    Strategic,
}

impl std::fmt::Display for PatchTarget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {} ", self.api_version, self.kind)?;
        if let Some(namespace) = &self.namespace {
            write!(f, "{namespace}/")?;
        }
        f.write_str(&self.name)
    }
}
