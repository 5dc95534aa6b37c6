//! `ClusterProfile` (KEP-4322, KEP-5339) as the operator reads it; whatever else it holds is left alone.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What a cluster manager declares about a cluster.
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
    /// Name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub display_name: Option<String>,
}

/// What is known about a cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterProfileStatus {
    /// Among them `ControlPlaneHealthy`.
    pub conditions: Vec<ProfileCondition>,
    /// The ways to reach the cluster.
    pub access_providers: Vec<AccessProvider>,
    /// The ways to reach the cluster, under their deprecated name.
    pub credential_providers: Vec<AccessProvider>,
}

/// A condition of a ClusterProfile.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct ProfileCondition {
    /// What it is about.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// Why, as a sentence.
    pub message: String,
}

/// One way to reach a cluster (KEP-5339).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AccessProvider {
    /// Type of the provider, matched with the operator's provider file.
    pub name: String,
    /// Where the cluster is.
    #[serde(default)]
    pub cluster: AccessCluster,
}

/// Where a cluster is: the kubeconfig `Cluster` (`client.authentication.k8s.io/v1`).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", default)]
pub struct AccessCluster {
    /// URL of the API server.
    pub server: String,
    /// Name to verify the server's certificate against.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_server_name: Option<String>,
    /// Whether the server's certificate goes unverified.
    pub insecure_skip_tls_verify: bool,
    /// PEM certificates of the server's authorities, in base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub certificate_authority_data: Option<String>,
    /// Proxy to go through.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy_url: Option<String>,
    /// Settings for plugins.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub extensions: Vec<NamedExtension>,
}

/// A named setting for plugins.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct NamedExtension {
    /// Who it is for, such as `client.authentication.k8s.io/exec`.
    pub name: String,
    /// What it says.
    pub extension: Value,
}
