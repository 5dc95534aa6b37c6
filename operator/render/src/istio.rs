//! Services of Istio's gateways: their namespaces and selectors.

use knative_operator_shared::api::Knative;
use serde_json::{Value, json};

use super::context::Context;
use super::error::TransformError;
use knative_operator_objects::text;
use knative_operator_shared::yaml;

const NAME: &str = "knative-local-gateway";

/// Sets the selector of a gateway's Service to the overridden selector of its Gateway.
pub fn set_selector(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    let Knative::Serving(serving) = cx.resource else { return Ok(()) };
    let Some(istio) = serving.spec.ingress.as_ref().and_then(|i| i.istio.as_ref()) else { return Ok(()) };
    let given = match (text(object, "/apiVersion"), text(object, "/kind"), text(object, "/metadata/name")) {
        ("v1", "Service", NAME) => &istio.knative_local_gateway,
        ("v1", "Service", "knative-ingress-gateway") => &istio.knative_ingress_gateway,
        _ => return Ok(()),
    };
    if let Some(gateway) = given.as_ref().filter(|g| !g.selector.is_empty()) {
        object["spec"]["selector"] = json!(gateway.selector);
    }
    Ok(())
}

/// Moves the Service of the local gateway to Istio's namespace, where the custom resource can't own
/// it.
pub fn move_local_gateway(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    let is_local_gateway = text(object, "/apiVersion") == "v1"
        && text(object, "/kind") == "Service"
        && text(object, "/metadata/name") == NAME;
    if !(is_local_gateway && matches!(cx.resource, Knative::Serving(_))) {
        return Ok(());
    }
    let config = &cx.resource.common().config;
    // The full name wins.
    let given = ["config-istio", "istio"].into_iter().filter_map(|name| config.get(name)).find_map(|entries| {
        let namespace_in_list = entries.get("local-gateways").and_then(|text| namespace_in_list(text));
        namespace_in_list.or_else(|| {
            let address = entries.get(&format!("local-gateway.{}.{NAME}", cx.namespace))?;
            address.split('.').nth(1).map(str::to_owned)
        })
    });
    object["metadata"]["namespace"] = json!(given.unwrap_or_else(|| "istio-system".to_owned()));
    Ok(())
}

/// Namespace of the local gateway in a list of `{name, namespace, service}`.
fn namespace_in_list(text: &str) -> Option<String> {
    let gateways: Vec<Value> = yaml::parse(text).ok()?;
    let own = gateways.iter().find(|g| g["name"] == NAME)?;
    own["namespace"].as_str().filter(|n| !n.is_empty()).map(str::to_owned)
}
