//! `KnativeServing`.

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{CommonSpec, IngressConfigs, KnativeStatus};

/// Spec of an installation of Knative Serving.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "operator.knative.dev",
    version = "v1beta1",
    kind = "KnativeServing",
    plural = "knativeservings",
    category = "knative",
    namespaced,
    derive = "PartialEq",
    derive = "Default",
    status = "KnativeStatus"
)]
#[serde(rename_all = "camelCase")]
pub struct KnativeServingSpec {
    /// The part that both kinds share.
    #[serde(flatten)]
    pub common: CommonSpec,
    /// Certificates that the controller trusts when it connects to registries.
    #[serde(rename = "controller-custom-certs", default, skip_serializing_if = "Option::is_none")]
    pub controller_custom_certs: Option<CustomCerts>,
    /// The ingress to install. Defaults to Istio.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress: Option<IngressConfigs>,
    /// Security extensions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security: Option<SecurityConfigs>,
}

/// A ConfigMap or Secret with certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CustomCerts {
    /// `ConfigMap` or `Secret`.
    #[serde(rename = "type")]
    pub type_: String,
    /// Its name.
    pub name: String,
}

/// Security extensions.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", default)]
pub struct SecurityConfigs {
    /// Security guard.
    pub security_guard: SecurityGuard,
}

/// Security guard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SecurityGuard {
    /// Whether to install it.
    pub enabled: bool,
}
