//! `spec.ingress.kourier`: its Service.

use super::{Example, Problem, Rule, Severity, syntax};
use crate::api::Knative;

/// The type of the Service, and what goes with it.
pub static SERVICE: Rule = Rule {
    id: "kourier-service",
    severity: Severity::Error,
    says: "Kourier's Service is `ClusterIP`, `NodePort` or `LoadBalancer`; node ports go with `NodePort`, an address with `LoadBalancer`.",
    kept: Example::serving(
        r#"{"ingress": {"kourier": {"enabled": true, "service-type": "NodePort", "http-port": 30080}}}"#,
    ),
    broken: Example::serving(
        r#"{"ingress": {"kourier": {"enabled": true, "service-type": "ClusterIP", "http-port": 30080}}}"#,
    ),
};

/// Ports.
pub static PORT: Rule = Rule {
    id: "kourier-port",
    severity: Severity::Error,
    says: "Kourier's node ports are two different ports.",
    kept: Example::serving(
        r#"{"ingress": {"kourier": {"enabled": true, "service-type": "NodePort", "http-port": 30080, "https-port": 30443}}}"#,
    ),
    broken: Example::serving(
        r#"{"ingress": {"kourier": {"enabled": true, "service-type": "NodePort", "http-port": 70000}}}"#,
    ),
};

const PATH: &str = "spec.ingress.kourier";
/// The type of the Service as it is released.
const RELEASED: &str = "LoadBalancer";

pub fn check(resource: &Knative, found: &mut Vec<Problem>) {
    let Knative::Serving(serving) = resource else { return };
    let Some(kourier) = serving.spec.ingress.as_ref().and_then(|i| i.kourier.as_ref()) else { return };
    let given = kourier.service_type.as_deref().filter(|t| !t.is_empty());
    let type_ = given.unwrap_or(RELEASED);
    if !matches!(type_, "ClusterIP" | "NodePort" | "LoadBalancer") {
        let fix = "set it to ClusterIP, NodePort or LoadBalancer";
        found.push(SERVICE.at(
            format!("{PATH}.service-type"),
            format!("\"{type_}\" is no type that Kourier's Service can have"),
            fix,
        ));
        return;
    }
    let ports = [("http-port", kourier.http_port), ("https-port", kourier.https_port)];
    for (field, port) in ports.iter().filter_map(|(field, port)| Some((field, (*port)?))) {
        let place = || format!("{PATH}.{field}");
        if !(0..=65535).contains(&port) {
            found.push(PORT.at(
                place(),
                format!("{port} is no port"),
                "set it to a port in the API server's range of node ports, 30000 to 32767 by default",
            ));
        } else if port > 0 && type_ != "NodePort" {
            found.push(SERVICE.at(
                place(),
                format!("{port} doesn't go with a Service of type {type_}"),
                "set service-type to NodePort, or remove it",
            ));
        }
    }
    if let (Some(http), Some(https)) = (kourier.http_port, kourier.https_port)
        && http == https
        && http > 0
    {
        found.push(PORT.at(
            format!("{PATH}.https-port"),
            format!("{https} is http-port as well"),
            "choose another port",
        ));
    }
    if let Some(address) = kourier.service_load_balancer_ip.as_deref().filter(|ip| !ip.is_empty()) {
        let place = format!("{PATH}.service-load-balancer-ip");
        if type_ != RELEASED {
            let message = format!("doesn't go with a Service of type {type_}");
            found.push(SERVICE.at(place, message, "set service-type to LoadBalancer, or remove it"));
        } else if address.parse::<core::net::IpAddr>().is_err() {
            found.push(SERVICE.at(
                place,
                format!("\"{address}\" is no IP address"),
                "set it to one such as 203.0.113.7, or remove it",
            ));
        }
    }
    if let Some(name) = kourier.bootstrap_configmap.as_deref().filter(|n| !n.is_empty())
        && let Some(wrong) = syntax::subdomain(name)
    {
        found.push(SERVICE.at(
            format!("{PATH}.bootstrap-configmap"),
            format!("\"{name}\" {wrong}"),
            "set it to the name of a ConfigMap",
        ));
    }
}
