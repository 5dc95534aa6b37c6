//! Checks that mappings are mappings, which all other transforms rely on.

use serde_json::Value;

use super::context::Context;
use super::error::TransformError;
use super::pod::{CONTAINERS, INIT_CONTAINERS};
use knative_operator_objects::text;

/// Pointers to mappings in all objects.
const MAPPINGS: [&str; 5] = ["/metadata", "/metadata/labels", "/metadata/annotations", "/spec", "/data"];
/// Pointers to mappings in workloads, Services and Gateways.
const OF_WORKLOADS: [&str; 6] = [
    "/spec/template",
    "/spec/template/metadata",
    "/spec/template/metadata/labels",
    "/spec/template/metadata/annotations",
    "/spec/template/spec",
    "/spec/selector",
];
/// Pointers to mappings in containers.
const OF_CONTAINERS: [&str; 5] =
    ["/resources", "/resources/limits", "/resources/requests", "/readinessProbe", "/livenessProbe"];

/// Fails if the object has another type where a mapping is expected. Changes nothing.
pub fn check(object: &mut Value, _: &Context<'_>) -> Result<(), TransformError> {
    mappings(object, &MAPPINGS, "")?;
    // Kinds that Kubernetes doesn't define may have any structure.
    if !matches!(text(object, "/kind"), "Deployment" | "StatefulSet" | "DaemonSet" | "Job" | "Service") {
        return Ok(());
    }
    mappings(object, &OF_WORKLOADS, "")?;
    for list in [CONTAINERS, INIT_CONTAINERS] {
        for (index, container) in object.pointer(list).and_then(Value::as_array).into_iter().flatten().enumerate() {
            let pointer = format!("{list}/{index}");
            if !container.is_object() {
                return Err(not_a_mapping(&pointer));
            }
            mappings(container, &OF_CONTAINERS, &pointer)?;
            let variables = container.get("env").and_then(Value::as_array).into_iter().flatten();
            if let Some((number, _)) = variables.enumerate().find(|(_, v)| !v.is_object()) {
                return Err(not_a_mapping(&format!("{pointer}/env/{number}")));
            }
        }
    }
    Ok(())
}

fn mappings(value: &Value, pointers: &[&str], within: &str) -> Result<(), TransformError> {
    let other = |pointer: &&&str| value.pointer(pointer).is_some_and(|v| !(v.is_object() || v.is_null()));
    pointers.iter().find(other).map_or(Ok(()), |pointer| Err(not_a_mapping(&format!("{within}{pointer}"))))
}

fn not_a_mapping(pointer: &str) -> TransformError {
    TransformError::NotMapping(pointer.trim_start_matches('/').replace('/', "."))
}
