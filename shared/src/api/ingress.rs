//! Ingresses of Serving and their settings.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The ingresses of Knative Serving. Defaults to Istio.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct IngressConfigs {
    /// Istio (net-istio).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub istio: Option<IstioIngress>,
    /// Kourier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kourier: Option<KourierIngress>,
    /// Contour (net-contour).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub contour: Option<PlainIngress>,
    /// Gateway API (net-gateway-api).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gateway_api: Option<PlainIngress>,
}

/// An ingress without settings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlainIngress {
    /// Whether to install it.
    #[serde(default)]
    pub enabled: bool,
}

/// Settings of Istio.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct IstioIngress {
    /// Whether to install it.
    #[serde(default)]
    pub enabled: bool,
    /// Overrides of the Gateway `knative-ingress-gateway`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knative_ingress_gateway: Option<IstioGateway>,
    /// Overrides of the Gateway `knative-local-gateway`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub knative_local_gateway: Option<IstioGateway>,
}

/// Overrides of an Istio Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IstioGateway {
    /// Selector of the gateway's Pods.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, String>,
    /// Servers of the gateway.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub servers: Vec<IstioServer>,
}

/// A server of an Istio Gateway (Istio's `networking.istio.io` reference).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IstioServer {
    /// Port to listen to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port: Option<IstioPort>,
    /// Address to bind to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bind: Option<String>,
    /// Hosts to serve.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<String>,
    /// TLS settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<IstioTls>,
    /// Default destination of traffic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_endpoint: Option<String>,
    /// Name of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// A port of an Istio Gateway. `target_port` is spelled as in the Go operator's CRD.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IstioPort {
    /// Port number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub number: Option<i64>,
    /// Protocol, such as `HTTP`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub protocol: Option<String>,
    /// Name of the port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Port of the Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub target_port: Option<i64>,
}

/// TLS settings of an Istio Gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IstioTls {
    /// Whether to redirect HTTP to HTTPS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub https_redirect: Option<bool>,
    /// TLS mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<IstioTlsMode>,
    /// Path of the server's certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_certificate: Option<String>,
    /// Path of the server's key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub private_key: Option<String>,
    /// Path of the certificates of clients' authorities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_certificates: Option<String>,
    /// Secret with the certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential_name: Option<String>,
    /// Allowed names in clients' certificates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub subject_alt_names: Vec<String>,
    /// Hashes of allowed clients' keys.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verify_certificate_spki: Vec<String>,
    /// Hashes of allowed clients' certificates.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub verify_certificate_hash: Vec<String>,
    /// Minimum TLS version, as Istio's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub min_protocol_version: Option<i64>,
    /// Maximum TLS version, as Istio's number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub max_protocol_version: Option<i64>,
    /// Cipher suites.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cipher_suites: Vec<String>,
}

/// TLS modes of an Istio Gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[allow(missing_docs)]
pub enum IstioTlsMode {
    Passthrough,
    Simple,
    Mutual,
    AutoPassthrough,
    IstioMutual,
}

/// Settings of Kourier.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub struct KourierIngress {
    /// Whether to install it.
    #[serde(default)]
    pub enabled: bool,
    /// Type of the Service `kourier`: `ClusterIP`, `NodePort` or `LoadBalancer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_type: Option<String>,
    /// Address for a Service of type `LoadBalancer`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_load_balancer_ip: Option<String>,
    /// Node port for HTTP, with a Service of type `NodePort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub http_port: Option<i64>,
    /// Node port for HTTPS, with a Service of type `NodePort`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<i32>")]
    pub https_port: Option<i64>,
    /// ConfigMap with Envoy's bootstrap configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap_configmap: Option<String>,
}

impl IngressConfigs {
    /// Directory names, in the bundle, of the enabled ingresses, in the order of the Go operator.
    pub fn enabled(&self) -> Vec<&'static str> {
        let on = |name, enabled: Option<bool>| enabled.unwrap_or(false).then_some(name);
        [
            on("istio", self.istio.as_ref().map(|i| i.enabled)),
            on("contour", self.contour.as_ref().map(|i| i.enabled)),
            on("kourier", self.kourier.as_ref().map(|i| i.enabled)),
            on("gateway-api", self.gateway_api.as_ref().map(|i| i.enabled)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }
}
