//! The minimum Kubernetes version that Knative accepts, from the operator's own setting.

use serde_json::{Value, json};

use super::context::Context;
use super::error::TransformError;
use super::pod::{CONTAINERS, INIT_CONTAINERS, is_workload, set_environment};

/// Environment variable of the setting, in Knative's components and in the operator.
pub const VARIABLE: &str = "KUBERNETES_MIN_VERSION";

/// Sets the environment variable in every container.
pub fn set_min_version(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
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
