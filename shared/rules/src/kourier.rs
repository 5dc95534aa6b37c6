//! `spec.ingress.kourier`: its Service.

use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::Knative;
use knative_operator_shared::syntax;

/// Type of the Service, and settings that depend on it.
pub static SERVICE: Rule = Rule {
    id: "kourier-service",
    severity: Severity::Error,
    requirement: "Kourier's Service is `ClusterIP`, `NodePort` or `LoadBalancer`; node ports require `NodePort`, an address requires `LoadBalancer`.",
    valid: Example::serving(
        r#"{"ingress": {"kourier": {"enabled": true, "service-type": "NodePort", "http-port": 30080}}}"#,
    ),
    invalid: Example::serving(
        r#"{"ingress": {"kourier": {"enabled": true, "service-type": "ClusterIP", "http-port": 30080}}}"#,
    ),
};

/// Node ports.
pub static PORT: Rule = Rule {
    id: "kourier-port",
    severity: Severity::Error,
    requirement: "Kourier's node ports are two different ports.",
    valid: Example::serving(
        r#"{"ingress": {"kourier": {"enabled": true, "service-type": "NodePort", "http-port": 30080, "https-port": 30443}}}"#,
    ),
    invalid: Example::serving(
        r#"{"ingress": {"kourier": {"enabled": true, "service-type": "NodePort", "http-port": 70000}}}"#,
    ),
};

const PATH: &str = "spec.ingress.kourier";
/// Type of the Service in the release.
const RELEASED: &str = "LoadBalancer";

pub fn check(resource: &Knative, violations: &mut Vec<Violation>) {
    let Knative::Serving(serving) = resource else { return };
    let Some(kourier) = serving.spec.ingress.as_ref().and_then(|i| i.kourier.as_ref()) else { return };
    let given = kourier.service_type.as_deref().filter(|t| !t.is_empty());
    let type_ = given.unwrap_or(RELEASED);
    if !matches!(type_, "ClusterIP" | "NodePort" | "LoadBalancer") {
        let fix = "set it to ClusterIP, NodePort or LoadBalancer";
        violations.push(SERVICE.at(
            format!("{PATH}.service-type"),
            format!("\"{type_}\" is not a type for Kourier's Service"),
            fix,
        ));
        return;
    }
    let ports = [("http-port", kourier.http_port), ("https-port", kourier.https_port)];
    for (field, port) in ports.iter().filter_map(|(field, port)| Some((field, (*port)?))) {
        let field_path = || format!("{PATH}.{field}");
        if !(0..=65535).contains(&port) {
            violations.push(PORT.at(
                field_path(),
                format!("{port} is not a port"),
                "set it to a port in the API server's range of node ports, 30000 to 32767 by default",
            ));
        } else if port > 0 && type_ != "NodePort" {
            violations.push(SERVICE.at(
                field_path(),
                format!("{port} requires a Service of type NodePort, not {type_}"),
                "set service-type to NodePort, or remove it",
            ));
        }
    }
    if let (Some(http), Some(https)) = (kourier.http_port, kourier.https_port)
        && http == https
        && http > 0
    {
        violations.push(PORT.at(
            format!("{PATH}.https-port"),
            format!("{https} is the same as http-port"),
            "choose another port",
        ));
    }
    if let Some(address) = kourier.service_load_balancer_ip.as_deref().filter(|ip| !ip.is_empty()) {
        let field_path = format!("{PATH}.service-load-balancer-ip");
        if type_ != RELEASED {
            let message = format!("requires a Service of type LoadBalancer, not {type_}");
            violations.push(SERVICE.at(field_path, message, "set service-type to LoadBalancer, or remove it"));
        } else if address.parse::<core::net::IpAddr>().is_err() {
            violations.push(SERVICE.at(
                field_path,
                format!("\"{address}\" is not an IP address"),
                "set it to one such as 203.0.113.7, or remove it",
            ));
        }
    }
    if let Some(name) = kourier.bootstrap_configmap.as_deref().filter(|n| !n.is_empty())
        && let Some(wrong) = syntax::subdomain(name)
    {
        violations.push(SERVICE.at(
            format!("{PATH}.bootstrap-configmap"),
            format!("\"{name}\" {wrong}"),
            "set it to the name of a ConfigMap",
        ));
    }
}
