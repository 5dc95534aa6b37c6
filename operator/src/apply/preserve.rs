//! What other controllers set on workloads of ours, and keeps when these are applied. Pure.

use serde_json::Value;

use crate::object::text;

/// Workloads whose replicas another controller sets.
const SCALED: [&str; 4] = ["pingsource-mt-adapter", "kafka-source-dispatcher", "kafka-channel-dispatcher", "kafka-broker-dispatcher"];
/// The adapter whose environment Eventing's controller sets as well.
const ADAPTER: &str = "pingsource-mt-adapter";
/// What it sets.
const VARIABLES: [&str; 9] = [
    "SYSTEM_NAMESPACE",
    "NAMESPACE",
    "K_METRICS_CONFIG",
    "K_LOGGING_CONFIG",
    "K_LEADER_ELECTION_CONFIG",
    "K_NO_SHUTDOWN_AFTER",
    "K_SINK_TIMEOUT",
    "K_TRACING_CONFIG",
    "K_OBSERVABILITY_CONFIG",
];

/// Whether another controller sets the replicas of the workload called `name`.
pub fn scaled(name: &str) -> bool {
    SCALED.contains(&name)
}

/// Takes out of a scaled `workload` what another controller sets.
pub fn disclaim(workload: &mut Value) {
    workload["spec"].as_object_mut().and_then(|spec| spec.remove("replicas"));
    for container in workload.pointer_mut("/spec/template/spec/containers").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(variables) = container.get_mut("env").and_then(Value::as_array_mut) {
            variables.retain(|v| !VARIABLES.contains(&text(v, "/name")));
        }
    }
}

/// Gives `desired` what is so in `live` and another controller's to set. What is only in `live` is not claimed: it stays.
pub fn keep(desired: &mut Value, live: &Value) {
    if let Some(replicas) = live.pointer("/spec/replicas") {
        desired["spec"]["replicas"] = replicas.clone();
    }
    if text(desired, "/metadata/name") != ADAPTER {
        return;
    }
    let list = "/spec/template/spec/containers";
    let found = live.pointer(list).and_then(Value::as_array);
    for container in desired.pointer_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(found) = found.into_iter().flatten().find(|c| c["name"] == container["name"]) else { continue };
        for variable in container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
            let name = text(variable, "/name");
            let set = found["env"].as_array().into_iter().flatten().find(|v| text(v, "/name") == name && VARIABLES.contains(&name));
            if let Some(set) = set.cloned() {
                *variable = set;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_another_controller_has_set_stays() {
        let workload = |name: &str, replicas: u8, env: Value| json!({"metadata": {"name": name}, "spec": {"replicas": replicas, "template": {"spec": {"containers": [{"name": "c", "env": env}]}}}});
        let ours = json!([{"name": "K_SINK_TIMEOUT"}, {"name": "OTHER", "value": "ours"}]);
        let theirs =
            json!([{"name": "K_SINK_TIMEOUT", "value": "60"}, {"name": "OTHER", "value": "theirs"}, {"name": "NAMESPACE", "value": "n"}]);
        let mut desired = workload(ADAPTER, 0, ours.clone());
        keep(&mut desired, &workload(ADAPTER, 1, theirs.clone()));
        assert_eq!(desired, workload(ADAPTER, 1, json!([{"name": "K_SINK_TIMEOUT", "value": "60"}, {"name": "OTHER", "value": "ours"}])));
        let mut desired = workload("kafka-source-dispatcher", 0, ours.clone());
        keep(&mut desired, &workload("kafka-source-dispatcher", 3, theirs));
        assert_eq!(desired, workload("kafka-source-dispatcher", 3, ours));
    }
}
