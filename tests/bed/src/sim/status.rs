//! Sets the status that a cluster's controllers would set a moment after an apply.

use serde_json::{Value, json};

/// The status of `object` in its `generation` at `now`.
pub fn of(object: &Value, generation: u64, now: &str) -> Option<Value> {
    let condition =
        |type_: &str| json!({"type": type_, "status": "True", "reason": "Simulated", "lastTransitionTime": now});
    let replicas = object["spec"]["replicas"].as_u64().unwrap_or(1);
    match object["kind"].as_str()? {
        "Deployment" => Some(json!({
            "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas,
            "availableReplicas": replicas, "conditions": [condition("Available"), condition("Progressing")],
        })),
        "StatefulSet" => Some(json!({
            "observedGeneration": generation, "replicas": replicas, "updatedReplicas": replicas, "readyReplicas": replicas,
            "availableReplicas": replicas, "currentRevision": "1", "updateRevision": "1",
        })),
        "CustomResourceDefinition" => {
            Some(json!({"conditions": [condition("NamesAccepted"), condition("Established")]}))
        }
        "Job" => Some(json!({"succeeded": 1, "conditions": [condition("Complete")]})),
        _ => None,
    }
}
