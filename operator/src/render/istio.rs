//! Istio's local gateway: a Service that lives where Istio does.

use knative_operator_shared::api::Knative;
use serde_json::{Value, json};

use super::Context;
use crate::object::text;

const NAME: &str = "knative-local-gateway";

/// Puts the Service of the local gateway into Istio's namespace, where the custom resource can't own it.
pub fn local_gateway(object: &mut Value, cx: &Context<'_>) -> Result<(), String> {
    let ours = text(object, "/apiVersion") == "v1" && text(object, "/kind") == "Service" && text(object, "/metadata/name") == NAME;
    if !(ours && matches!(cx.resource, Knative::Serving(_))) {
        return Ok(());
    }
    let config = &cx.resource.common().config;
    // The longer name wins.
    let given = ["config-istio", "istio"].into_iter().filter_map(|name| config.get(name)).find_map(|entries| {
        let listed = entries.get("local-gateways").and_then(|text| listed(text));
        listed.or_else(|| {
            let address = entries.get(&format!("local-gateway.{}.{NAME}", cx.namespace))?;
            address.split('.').nth(1).map(str::to_owned)
        })
    });
    object["metadata"]["namespace"] = json!(given.unwrap_or_else(|| "istio-system".to_owned()));
    if let Some(metadata) = object["metadata"].as_object_mut() {
        metadata.remove("ownerReferences");
    }
    Ok(())
}

/// The namespace of our gateway in a list of `{name, namespace, service}`.
fn listed(text: &str) -> Option<String> {
    let gateways: Vec<Value> = serde_saphyr::from_str(text).ok()?;
    let own = gateways.iter().find(|g| g["name"] == NAME)?;
    own["namespace"].as_str().filter(|n| !n.is_empty()).map(str::to_owned)
}
