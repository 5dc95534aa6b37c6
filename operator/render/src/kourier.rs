//! `spec.ingress.kourier`: settings of Kourier.

use std::fmt::Display;

use knative_operator_shared::api::{Knative, KourierIngress};
use serde_json::{Value, json};

use super::context::Context;
use super::error::TransformError;
use super::pod::containers;
use knative_operator_objects::text;

fn enabled_kourier<'a>(cx: &'a Context<'_>) -> Option<&'a KourierIngress> {
    let Knative::Serving(serving) = cx.resource else { return None };
    serving.spec.ingress.as_ref()?.kourier.as_ref().filter(|k| k.enabled)
}

fn is(object: &Value, kind: &str, names: &[&str]) -> bool {
    text(object, "/kind") == kind && names.contains(&text(object, "/metadata/name"))
}

/// Sets the namespace in which the controller looks for its gateway.
pub fn set_gateway_namespace(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    if enabled_kourier(cx).is_none() || !is(object, "Deployment", &["net-kourier-controller", "3scale-kourier-control"])
    {
        return Ok(());
    }
    for variable in containers(object).filter_map(|c| c.get_mut("env")?.as_array_mut()).flatten() {
        if text(variable, "/name") == "KOURIER_GATEWAY_NAMESPACE" {
            variable["value"] = json!(cx.namespace);
        }
    }
    Ok(())
}

/// Sets the namespace of the controller's Service in Envoy's bootstrap configuration.
pub fn set_bootstrap_namespace(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    let is_bootstrap = enabled_kourier(cx).is_some() && is(object, "ConfigMap", &["kourier-bootstrap"]);
    if let Some(Value::String(envoy)) = object.pointer_mut("/data/envoy-bootstrap.yaml").filter(|_| is_bootstrap) {
        *envoy = envoy.replace("knative-serving", cx.namespace);
    }
    Ok(())
}

fn unfit(field: &str, why: &dyn Display) -> TransformError {
    TransformError::field(format!("spec.ingress.kourier.{field}"), why)
}

/// Sets type, address and node ports of the gateway's Service.
pub fn configure_service(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    let Some(kourier) = enabled_kourier(cx).filter(|_| is(object, "Service", &["kourier"])) else { return Ok(()) };
    match kourier.service_type.as_deref() {
        None | Some("") => {}
        Some(type_ @ ("ClusterIP" | "LoadBalancer" | "NodePort")) => object["spec"]["type"] = json!(type_),
        Some("ExternalName") => {
            return Err(unfit("service-type", &"unsupported service type \"ExternalName\""));
        }
        Some(other) => return Err(unfit("service-type", &format!("unknown service type \"{other}\""))),
    }
    let type_ = text(object, "/spec/type").to_owned();
    if let Some(address) = kourier.service_load_balancer_ip.as_deref().filter(|a| !a.is_empty()) {
        if type_ != "LoadBalancer" {
            let why = format!("cannot configure LoadBalancerIP for service type \"{type_}\"");
            return Err(unfit("service-load-balancer-ip", &why));
        }
        object["spec"]["loadBalancerIP"] = json!(address);
    }
    let (http, https) = (kourier.http_port.filter(|p| *p > 0), kourier.https_port.filter(|p| *p > 0));
    for (port, name, field) in [(http, "HTTP", "http-port"), (https, "HTTPS", "https-port")] {
        if port.is_some() && type_ != "NodePort" {
            return Err(unfit(field, &format!("cannot configure {name}Port for service type \"{type_}\"")));
        }
    }
    for port in object.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(number) = if text(port, "/name") == "https" { https } else { http } {
            port["nodePort"] = json!(number);
        }
    }
    Ok(())
}

/// Sets the ConfigMap with the bootstrap configuration of the gateway.
pub fn set_bootstrap_configmap(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    let name = enabled_kourier(cx).and_then(|k| k.bootstrap_configmap.as_deref()).filter(|n| !n.is_empty());
    let Some(name) = name.filter(|_| is(object, "Deployment", &["3scale-kourier-gateway"])) else { return Ok(()) };
    for volume in object.pointer_mut("/spec/template/spec/volumes").and_then(Value::as_array_mut).into_iter().flatten()
    {
        if text(volume, "/configMap/name") == "kourier-bootstrap" {
            volume["configMap"]["name"] = json!(name);
        }
    }
    Ok(())
}
