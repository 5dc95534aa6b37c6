//! `spec.ingress.istio`: servers of its Gateways.

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::{IstioServer, IstioTlsMode, Knative};

/// Required fields of a server.
pub static SERVER: Rule = Rule {
    id: "istio-gateway-server",
    severity: Severity::Error,
    requirement: "A server of an Istio Gateway has a port with number, protocol and name, and hosts; with TLS it has a certificate.",
    valid: Example::serving(
        r#"{"ingress": {"istio": {"enabled": true, "knative-ingress-gateway": {"servers": [{"port": {"number": 80, "protocol": "HTTP", "name": "http"}, "hosts": ["*"]}]}}}}"#,
    ),
    invalid: Example::serving(
        r#"{"ingress": {"istio": {"enabled": true, "knative-ingress-gateway": {"servers": [{"port": {"number": 443, "protocol": "HTTPS", "name": "https"}, "hosts": ["*"], "tls": {"mode": "SIMPLE"}}]}}}}"#,
    ),
};

/// Protocols of Istio's `Port` (networking.istio.io reference).
const PROTOCOLS: [&str; 8] = ["HTTP", "HTTPS", "GRPC", "GRPC-WEB", "HTTP2", "MONGO", "TCP", "TLS"];

pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    let Knative::Serving(serving) = resource else { return };
    let Some(istio) = serving.spec.ingress.as_ref().and_then(|i| i.istio.as_ref()) else { return };
    for (field, gateway) in [
        ("knative-ingress-gateway", &istio.knative_ingress_gateway),
        ("knative-local-gateway", &istio.knative_local_gateway),
    ] {
        for (index, server) in gateway.iter().flat_map(|g| &g.servers).enumerate() {
            check_server(&format!("spec.ingress.istio.{field}.servers[{index}]"), server, violations);
        }
    }
}

fn check_server(path: &str, server: &IstioServer, violations: &mut Vec<Violation>) {
    let mut report =
        |field: &str, message: String, fix: &str| violations.push(SERVER.at(format!("{path}.{field}"), message, fix));
    let port = server.port.as_ref();
    match port.and_then(|p| p.number) {
        Some(number) if (1..=65535).contains(&number) => {}
        Some(number) => report("port.number", format!("{number} is not a port"), "set it to a number from 1 to 65535"),
        None => report("port.number", "is not set".to_owned(), "set it to the port to listen to"),
    }
    match port.and_then(|p| p.protocol.as_deref()) {
        Some(protocol) if PROTOCOLS.contains(&protocol.to_ascii_uppercase().as_str()) => {}
        Some(protocol) => {
            report(
                "port.protocol",
                format!("\"{protocol}\" is not a protocol of Istio"),
                "set it to HTTP, HTTPS, HTTP2, GRPC, TCP or TLS",
            );
        }
        None => report("port.protocol", "is not set".to_owned(), "set it to HTTP, HTTPS, HTTP2, GRPC, TCP or TLS"),
    }
    if port.and_then(|p| p.name.as_deref()).is_none_or(str::is_empty) {
        report("port.name", "is not set".to_owned(), "give the port a name, such as https");
    }
    if server.hosts.iter().all(String::is_empty) {
        report("hosts", "is empty".to_owned(), "name the hosts to serve, or \"*\"");
    }
    let Some(tls) = &server.tls else { return };
    let has_certificate = tls.credential_name.as_ref().is_some_and(|n| !n.is_empty())
        || (tls.server_certificate.as_ref().is_some_and(|c| !c.is_empty())
            && tls.private_key.as_ref().is_some_and(|k| !k.is_empty()));
    if matches!(tls.mode, Some(IstioTlsMode::Simple | IstioTlsMode::Mutual)) && !has_certificate {
        report(
            "tls.credentialName",
            "is not set, and the mode needs a certificate".to_owned(),
            "name the Secret with the certificate, or set serverCertificate and privateKey",
        );
    }
    if let (Some(least), Some(most)) = (tls.min_protocol_version, tls.max_protocol_version)
        && most != 0
        && least > most
    {
        report("tls.minProtocolVersion", format!("{least} is above maxProtocolVersion {most}"), "swap them");
    }
}
