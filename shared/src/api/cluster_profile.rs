//! `ClusterProfile` (KEP-4322, KEP-5339), as far as the operator reads it.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

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
    /// Type of the provider, matched with the operator's provider file.
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
