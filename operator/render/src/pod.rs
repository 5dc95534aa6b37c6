//! Pod templates of workloads.

use serde_json::{Value, json};

use knative_operator_objects::text;

/// JSON pointer to the containers.
pub const CONTAINERS: &str = "/spec/template/spec/containers";
/// JSON pointer to the init containers.
pub const INIT_CONTAINERS: &str = "/spec/template/spec/initContainers";

/// Whether `object` is a workload with a Pod template.
pub fn is_workload(object: &Value) -> bool {
    matches!(text(object, "/kind"), "Deployment" | "StatefulSet" | "DaemonSet" | "Job")
}

/// The containers of a workload.
pub fn containers(object: &mut Value) -> impl Iterator<Item = &mut Value> {
    object.pointer_mut(CONTAINERS).and_then(Value::as_array_mut).into_iter().flatten()
}

/// The first container called `name`.
pub fn container<'a>(object: &'a mut Value, name: &str) -> Option<&'a mut Value> {
    containers(object).find(|c| text(c, "/name") == name)
}

/// The list at `key` of `object`, created if missing.
fn list<'a>(object: &'a mut Value, key: &str) -> Option<&'a mut Vec<Value>> {
    let value = &mut object[key];
    if !value.is_array() {
        *value = json!([]);
    }
    value.as_array_mut()
}

/// Sets `variables` in the environment of `container`: in place if the name exists, else at the
/// end.
pub fn set_environment(container: &mut Value, variables: &[Value]) {
    let Some(environment) = list(container, "env") else { return };
    for variable in variables {
        let mut found = false;
        for existing in environment.iter_mut().filter(|v| v["name"] == variable["name"]) {
            existing.clone_from(variable);
            found = true;
        }
        if !found {
            environment.push(variable.clone());
        }
    }
}

/// Sets `entries` in the map at `field` of the metadata of `object`.
pub fn add_metadata<'e>(object: &mut Value, field: &str, entries: impl IntoIterator<Item = (&'e String, &'e String)>) {
    for (key, value) in entries {
        object["metadata"][field][key] = json!(value);
    }
}

/// Appends those of `named` whose name the list at `key` lacks: Kubernetes allows each name once.
pub fn add_named(object: &mut Value, key: &str, named: &[Value]) {
    for entry in named {
        let Some(present) = list(object, key) else { return };
        if !present.iter().any(|p| p["name"] == entry["name"]) {
            present.push(entry.clone());
        }
    }
}
