//! `ClusterProfile` (KEP-4322, KEP-5339), as far as connections and selectors need it: the same
//! fields in all versions, apart from `credentialProviders`, which v1alpha2 lacks.

use std::collections::BTreeMap;

use kube::CustomResource;
use kube::core::DynamicObject;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::strict;

/// Condition of a ClusterProfile: its control plane is healthy.
pub const HEALTHY: &str = "ControlPlaneHealthy";
/// Annotation of a ClusterProfile in memory that this version can't read: the reason.
const UNREADABLE: &str = "unreadable";
/// The same, of one whose properties this version can't read, either.
const UNREADABLE_PROPERTIES: &str = "unreadable-properties";

/// Reference to a ClusterProfile (KEP-4322).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ClusterProfileReference {
    /// Name of the ClusterProfile.
    #[schemars(length(min = 1))]
    pub name: String,
    /// Namespace of the ClusterProfile.
    #[schemars(length(min = 1))]
    pub namespace: String,
}

impl std::fmt::Display for ClusterProfileReference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// Spec of a cluster.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "multicluster.x-k8s.io",
    version = "v1alpha1",
    kind = "ClusterProfile",
    plural = "clusterprofiles",
    namespaced,
    derive = "PartialEq",
    status = "ClusterProfileStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct ClusterProfileSpec {
    /// Human-readable name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
}

impl ClusterProfile {
    /// Reads `object`, which may be of any version. One that this version can't read has its
    /// metadata, its properties and the reason only, so that it keeps no other from being read.
    pub fn read(object: &DynamicObject) -> Self {
        let (mut value, mut metadata) = (object.data.clone(), object.metadata.clone());
        // One that somebody wrote says nothing.
        if let Some(annotations) = &mut metadata.annotations {
            annotations.retain(|name, _| ![UNREADABLE, UNREADABLE_PROPERTIES].contains(&name.as_str()));
        }
        // Metadata has string keys only, so it always serializes.
        value["metadata"] = serde_json::to_value(&metadata).unwrap_or_default();
        strict::read(&value).unwrap_or_else(|error| {
            let name = object.metadata.name.as_deref().unwrap_or_default();
            let mut profile = Self::new(name, ClusterProfileSpec::default());
            profile.metadata = metadata;
            let condition = ProfileCondition {
                type_: HEALTHY.to_owned(),
                status: "Unknown".to_owned(),
                message: format!("this version can't read the ClusterProfile: {error}"),
            };
            let annotations = profile.metadata.annotations.get_or_insert_default();
            annotations.insert(UNREADABLE.to_owned(), error.to_string());
            let properties = Properties::read(&value).unwrap_or_else(|error| {
                annotations.insert(UNREADABLE_PROPERTIES.to_owned(), error.to_string());
                Properties::default()
            });
            profile.status = Some(ClusterProfileStatus {
                conditions: vec![condition],
                properties,
                ..ClusterProfileStatus::default()
            });
            profile
        })
    }

    /// Why this version can't read it.
    pub fn unreadable(&self) -> Option<&str> {
        self.metadata.annotations.as_ref()?.get(UNREADABLE).map(String::as_str)
    }

    /// Whether this version can't read its properties.
    pub fn has_unreadable_properties(&self) -> bool {
        self.metadata.annotations.as_ref().is_some_and(|all| all.contains_key(UNREADABLE_PROPERTIES))
    }

    /// The reference to it.
    pub fn reference(&self) -> ClusterProfileReference {
        ClusterProfileReference {
            name: self.metadata.name.clone().unwrap_or_default(),
            namespace: self.metadata.namespace.clone().unwrap_or_default(),
        }
    }

    /// The condition with which its cluster manager vouches for the health of the cluster. Without
    /// it, nobody does.
    pub fn health(&self) -> Option<&ProfileCondition> {
        self.status.iter().flat_map(|status| &status.conditions).find(|condition| condition.type_ == HEALTHY)
    }

    /// Whether it names a way to access the cluster.
    pub fn has_access(&self) -> bool {
        self.status.iter().any(|status| status.access_providers.len() + status.credential_providers.len() > 0)
    }
}

/// Status of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterProfileStatus {
    /// Conditions, among them `ControlPlaneHealthy`.
    pub conditions: Vec<ProfileCondition>,
    /// Access providers.
    pub access_providers: Vec<AccessProvider>,
    /// Access providers, under their deprecated name.
    pub credential_providers: Vec<AccessProvider>,
    /// What its cluster manager says about the cluster, such as its region.
    pub properties: Properties,
}

/// Properties of a cluster, by name. When they were observed is not kept: it changes all the time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(from = "Vec<Property>", into = "Vec<Property>")]
pub struct Properties(pub BTreeMap<String, String>);

impl Properties {
    /// Those of `profile`, a ClusterProfile.
    ///
    /// # Errors
    ///
    /// Why this version can't read them.
    pub fn read(profile: &Value) -> Result<Self, serde_json::Error> {
        match profile.pointer("/status/properties") {
            None | Some(Value::Null) => Ok(Self::default()),
            Some(properties) => strict::read(properties),
        }
    }
}

impl From<Vec<Property>> for Properties {
    fn from(all: Vec<Property>) -> Self {
        Self(all.into_iter().map(|property| (property.name, property.value)).collect())
    }
}

impl From<Properties> for Vec<Property> {
    fn from(properties: Properties) -> Self {
        properties.0.into_iter().map(|(name, value)| Property { name, value }).collect()
    }
}

/// A property of a cluster (KEP-4322).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Property {
    /// Name, such as that of a ClusterProperty (KEP-2149).
    pub name: String,
    /// Value, which may be longer than that of a label.
    pub value: String,
}

/// A condition of a ClusterProfile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProfileCondition {
    /// Type.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Message.
    pub message: String,
}

/// An access provider of a cluster (KEP-5339).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AccessProvider {
    /// Type of the provider, matched with the provider file.
    pub name: String,
    /// Address of the cluster.
    #[serde(default)]
    pub cluster: AccessCluster,
}

/// Address of a cluster: the kubeconfig `Cluster` (`client.authentication.k8s.io/v1`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct AccessCluster {
    /// URL of the API server.
    pub server: String,
    /// Name to verify the server's certificate against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_server_name: Option<String>,
    /// Whether to skip the verification of the server's certificate.
    pub insecure_skip_tls_verify: bool,
    /// Path of a file with them, which only the writer of the profile has.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_authority: Option<String>,
    /// PEM certificates of the server's authorities, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_authority_data: Option<String>,
    /// URL of a proxy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_url: Option<String>,
    /// Settings for plugins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<NamedExtension>,
}

/// A named setting for plugins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NamedExtension {
    /// Name, such as `client.authentication.k8s.io/exec`.
    pub name: String,
    /// Value.
    pub extension: Value,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(status: &Value) -> ClusterProfile {
        let object = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
            "metadata": {"name": "a", "namespace": "f", "annotations": {UNREADABLE_PROPERTIES: "forged"}},
            "spec": {}, "status": status});
        ClusterProfile::read(&serde_json::from_value(object).unwrap())
    }

    #[test]
    fn properties_are_kept_without_their_times() {
        let of = |time: &str| {
            let properties = json!([
                {"name": "region.example.com/name", "value": "eu-1", "lastObservedTime": time},
                {"name": "any.name", "value": "any value, of any length"}]);
            read(&json!({"properties": properties}))
        };
        let profile = of("2026-01-01T00:00:00Z");
        let Properties(properties) = &profile.status.as_ref().unwrap().properties;
        assert_eq!((properties["region.example.com/name"].as_str(), properties.len()), ("eu-1", 2));
        assert_eq!(of("2026-01-02T00:00:00Z"), profile);
        assert!(!profile.has_unreadable_properties());
        // As they are stored.
        let stored = json!([{"name": "any.name", "value": "any value, of any length"},
            {"name": "region.example.com/name", "value": "eu-1"}]);
        assert_eq!(json!(profile)["status"]["properties"], stored);
        assert!(!read(&Value::Null).has_unreadable_properties());
    }

    #[test]
    fn properties_of_an_unreadable_profile_are_read_if_they_can_be() {
        let properties = json!([{"name": "region", "value": "eu"}]);
        let profile = read(&json!({"accessProviders": "newer", "properties": properties}));
        assert!(profile.unreadable().is_some() && !profile.has_unreadable_properties());
        assert_eq!(json!(profile)["status"]["properties"], properties);
        for newer in [json!({"region": "eu"}), json!([{"name": "region"}]), json!([["region", "eu"]])] {
            let profile = read(&json!({"properties": newer}));
            assert!(profile.unreadable().is_some() && profile.has_unreadable_properties(), "{newer}");
        }
    }
}
