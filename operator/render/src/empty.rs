//! Normalizes values that Kubernetes' types omit or fill in, so that the applied object equals the
//! stored one.

use serde_json::{Value, json};

use super::context::Context;
use super::error::TransformError;
use super::pod::{CONTAINERS, INIT_CONTAINERS, is_workload};
use knative_operator_objects::text;

/// Removes empty values of environment variables, and sets the Service name of a StatefulSet that
/// has none.
pub fn normalize(object: &mut Value, _: &Context<'_>) -> Result<(), TransformError> {
    if !is_workload(object) {
        return Ok(());
    }
    for list in [CONTAINERS, INIT_CONTAINERS] {
        let containers = object.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten();
        for variable in containers.filter_map(|c| c.get_mut("env")?.as_array_mut()).flatten() {
            if let Some(fields) = variable.as_object_mut().filter(|v| v.get("value").is_some_and(|value| value == "")) {
                fields.remove("value");
            }
        }
    }
    if text(object, "/kind") == "StatefulSet" && object["spec"]["serviceName"].is_null() {
        object["spec"]["serviceName"] = json!("");
    }
    Ok(())
}
