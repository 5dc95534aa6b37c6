//! `spec.ingress.istio`: overrides of Istio's Gateways.

use knative_operator_shared::api::{IstioGateway, IstioServer, IstioTlsMode, Knative};
use serde_json::{Value, json};

use super::context::Context;
use super::error::TransformError;
use knative_operator_objects::{gvk, text};

/// Replaces selector and servers of the Gateways, where given.
pub fn replace(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    if text(object, "/kind") != "Gateway" || gvk(object).group != "networking.istio.io" {
        return Ok(());
    }
    let Knative::Serving(serving) = cx.resource else { return Ok(()) };
    let istio = serving.spec.ingress.as_ref().and_then(|i| i.istio.as_ref()).filter(|i| i.enabled);
    let (field, given) = match (text(object, "/metadata/name"), istio) {
        ("knative-ingress-gateway", Some(istio)) => ("knative-ingress-gateway", &istio.knative_ingress_gateway),
        ("knative-local-gateway" | "cluster-local-gateway", Some(istio)) => {
            ("knative-local-gateway", &istio.knative_local_gateway)
        }
        _ => return Ok(()),
    };
    let Some(IstioGateway { selector, servers }) = given else { return Ok(()) };
    if !selector.is_empty() {
        object["spec"]["selector"] = json!(selector);
    }
    if !servers.is_empty() {
        let path = |index: usize| format!("spec.ingress.istio.{field}.servers[{index}]");
        let servers: Result<Vec<_>, _> = servers.iter().enumerate().map(|(i, s)| server(&path(i), s)).collect();
        object["spec"]["servers"] = json!(servers?);
    }
    Ok(())
}

/// The server at `path` in Istio's form. Zero values are omitted, as in Istio itself.
fn server(path: &str, given: &IstioServer) -> Result<Value, TransformError> {
    let mut server = json!(given);
    if let Some(port) = server.get_mut("port").and_then(Value::as_object_mut) {
        if let Some(target) = port.remove("target_port") {
            port.insert("targetPort".to_owned(), target);
        }
        port.retain(|_, v| !is_zero(v));
    }
    if let (Some(tls), Some(given)) = (server.get_mut("tls").and_then(Value::as_object_mut), &given.tls) {
        let versions =
            [("minProtocolVersion", given.min_protocol_version), ("maxProtocolVersion", given.max_protocol_version)];
        for (field, number) in versions {
            tls.insert(field.to_owned(), json!(protocol(&format!("{path}.tls.{field}"), number)?));
        }
        tls.retain(|_, v| !is_zero(v) && *v != json!(IstioTlsMode::Passthrough));
    }
    if let Some(fields) = server.as_object_mut() {
        fields.retain(|_, v| !is_zero(v));
    }
    Ok(server)
}

/// Istio's name for the TLS version that the Go operator's CRD numbers
/// (`ServerTLSSettings.TLSProtocol`).
fn protocol(field: &str, number: Option<i64>) -> Result<Option<&'static str>, TransformError> {
    match number {
        None | Some(0) => Ok(None),
        Some(1) => Ok(Some("TLSV1_0")),
        Some(2) => Ok(Some("TLSV1_1")),
        Some(3) => Ok(Some("TLSV1_2")),
        Some(4) => Ok(Some("TLSV1_3")),
        Some(other) => Err(TransformError::field(
            field,
            &format!("{other} is not a TLS version; set it to 0 (automatic), 1 (1.0), 2 (1.1), 3 (1.2) or 4 (1.3)"),
        )),
    }
}

fn is_zero(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(false) => true,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::String(text) => text.is_empty(),
        Value::Array(list) => list.is_empty(),
        Value::Bool(true) | Value::Object(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_is_rendered_in_istio_form() {
        let given = json!({
            "port": {"number": 443, "protocol": "HTTPS", "name": "https", "target_port": 8443},
            "hosts": ["*"],
            "tls": {"mode": "PASSTHROUGH", "httpsRedirect": false, "minProtocolVersion": 3, "credentialName": "c"},
        });
        let server = super::server("", &serde_json::from_value(given).unwrap()).unwrap();
        let expected = json!({
            "port": {"number": 443, "protocol": "HTTPS", "name": "https", "targetPort": 8443},
            "hosts": ["*"],
            "tls": {"minProtocolVersion": "TLSV1_2", "credentialName": "c"},
        });
        assert_eq!(server, expected);
        let given = json!({"tls": {"maxProtocolVersion": 9}});
        let error = super::server("servers[0]", &serde_json::from_value(given).unwrap()).unwrap_err().to_string();
        assert!(error.starts_with("servers[0].tls.maxProtocolVersion: 9 is not a TLS version"), "{error}");
    }
}
