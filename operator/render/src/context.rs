//! Inputs of rendering.

use knative_operator_shared::api::Knative;
use knative_operator_shared::version::Version;

use knative_operator_objects::Kinds;

/// Settings of the operator that affect rendering.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The minimum Kubernetes version that Knative accepts, such as `v1.34.0`.
    pub kubernetes_min_version: Option<String>,
}

/// Inputs of a transform.
pub struct Context<'a> {
    /// The custom resource.
    pub resource: &'a Knative,
    /// The version to install.
    pub version: &'a Version,
    /// The namespace of the installation.
    pub namespace: &'a str,
    /// The kinds that the release defines.
    pub kinds: &'a Kinds,
    /// Settings of the operator.
    pub settings: &'a Settings,
}
