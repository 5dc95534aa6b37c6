//! What API servers write to their audit logs.

use serde_json::{Value, json};

/// The audit policy: metadata of all requests, and the bodies of the operator's status updates and
/// events.
pub fn policy() -> Value {
    json!({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "omitStages": ["RequestReceived"], "rules": [
        {"level": "Request", "verbs": ["create", "update", "patch"], "resources": [
            {"group": "operator.knative.dev", "resources": ["knativeservings/status", "knativeeventings/status"]},
            {"group": "events.k8s.io", "resources": ["events"]},
        ]},
        {"level": "Metadata"},
    ]})
}
