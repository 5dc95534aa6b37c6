//! The oldest Kubernetes that Knative agrees to run on, as the operator itself was told.

use serde_json::{Value, json};

use super::Context;
use super::pod::{CONTAINERS, INIT_CONTAINERS, is_workload, set_environment};

/// The variable by which Knative's components and the operator are told.
pub const VARIABLE: &str = "KUBERNETES_MIN_VERSION";

/// Hands the operator's own setting on to every container.
pub fn hand_on(object: &mut Value, cx: &Context<'_>) -> Result<(), String> {
    let Some(version) = cx.settings.kubernetes_min_version.as_deref().filter(|v| !v.is_empty() && is_workload(object))
    else {
        return Ok(());
    };
    let variable = [json!({"name": VARIABLE, "value": version})];
    for list in [CONTAINERS, INIT_CONTAINERS] {
        for container in object.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            set_environment(container, &variable);
        }
    }
    Ok(())
}
