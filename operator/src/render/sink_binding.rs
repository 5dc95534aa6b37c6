//! Which namespaces Eventing's SinkBinding looks at.

use knative_operator_shared::api::Knative;
use serde_json::{Value, json};

use super::Context;
use crate::object::text;

const VARIABLE: &str = "SINK_BINDING_SELECTION_MODE";

/// Sets the mode in each container of the webhook: the first variable of that name, or a new one.
pub fn selection_mode(object: &mut Value, cx: &Context<'_>) -> Result<(), String> {
    let Knative::Eventing(eventing) = cx.resource else { return Ok(()) };
    if text(object, "/kind") != "Deployment" || text(object, "/metadata/name") != "eventing-webhook" {
        return Ok(());
    }
    let mode = eventing.spec.sink_binding_selection_mode.as_deref().filter(|m| !m.is_empty()).unwrap_or("exclusion");
    for container in object.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut).into_iter().flatten() {
        let environment = &mut container["env"];
        if !environment.is_array() {
            *environment = json!([]);
        }
        let Some(variables) = environment.as_array_mut() else { continue };
        match variables.iter_mut().find(|v| text(v, "/name") == VARIABLE) {
            Some(variable) => variable["value"] = json!(mode),
            None => variables.push(json!({"name": VARIABLE, "value": mode})),
        }
    }
    Ok(())
}
