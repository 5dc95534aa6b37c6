//! What every other transform relies on: that mappings are mappings.

use serde_json::Value;

use super::Context;
use super::pod::{CONTAINERS, INIT_CONTAINERS};
use crate::object::text;

/// What is a mapping wherever it is there.
const MAPPINGS: [&str; 5] = ["/metadata", "/metadata/labels", "/metadata/annotations", "/spec", "/data"];
/// The same, in workloads, Services and Gateways.
const OF_WORKLOADS: [&str; 6] = [
    "/spec/template",
    "/spec/template/metadata",
    "/spec/template/metadata/labels",
    "/spec/template/metadata/annotations",
    "/spec/template/spec",
    "/spec/selector",
];
/// The same, in containers.
const OF_CONTAINERS: [&str; 5] =
    ["/resources", "/resources/limits", "/resources/requests", "/readinessProbe", "/livenessProbe"];

/// Changes nothing: refuses an object that has something else where a mapping belongs.
pub fn check(object: &mut Value, _: &Context<'_>) -> Result<(), String> {
    mappings(object, &MAPPINGS, "")?;
    // What is not Kubernetes' own may look as it likes.
    if !matches!(text(object, "/kind"), "Deployment" | "StatefulSet" | "DaemonSet" | "Job" | "Service") {
        return Ok(());
    }
    mappings(object, &OF_WORKLOADS, "")?;
    for list in [CONTAINERS, INIT_CONTAINERS] {
        for (index, container) in object.pointer(list).and_then(Value::as_array).into_iter().flatten().enumerate() {
            let place = format!("{list}/{index}");
            if !container.is_object() {
                return Err(wrong(&place));
            }
            mappings(container, &OF_CONTAINERS, &place)?;
            let variables = container.get("env").and_then(Value::as_array).into_iter().flatten();
            if let Some((number, _)) = variables.enumerate().find(|(_, v)| !v.is_object()) {
                return Err(wrong(&format!("{place}/env/{number}")));
            }
        }
    }
    Ok(())
}

fn mappings(value: &Value, pointers: &[&str], within: &str) -> Result<(), String> {
    let other = |pointer: &&&str| value.pointer(pointer).is_some_and(|v| !(v.is_object() || v.is_null()));
    pointers.iter().find(other).map_or(Ok(()), |pointer| Err(wrong(&format!("{within}{pointer}"))))
}

fn wrong(pointer: &str) -> String {
    format!("{} is no mapping", pointer.trim_start_matches('/').replace('/', "."))
}
