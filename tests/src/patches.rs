//! Patches for benches.

use serde_json::{Value, json};

use crate::releases::Releases;

/// Twenty patches of all types.
pub fn twenty(releases: &Releases) -> Vec<Value> {
    let names: &[&str] = if releases.real {
        &["activator", "autoscaler", "autoscaler-hpa", "controller", "webhook"]
    } else {
        &["controller", "webhook"]
    };
    let patch = |index: usize| {
        let name = names[index % names.len()];
        let (type_, content) = match index / names.len() % 4 {
            0 => (
                "strategic",
                json!({"spec": {"template": {"spec": {"containers": [{"name": name, "env": [{"name": "A", "value": "b"}]}]}}}}),
            ),
            1 => ("merge", json!({"spec": {"template": {"metadata": {"annotations": {"a": "b"}}}}})),
            2 => ("json", json!([{"op": "add", "path": "/spec/revisionHistoryLimit", "value": 2}])),
            _ => ("strategic", json!({"spec": {"template": {"spec": {"tolerations": [{"operator": "Exists"}]}}}})),
        };
        json!({"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "patch": {"type": type_, "content": content.to_string()}})
    };
    (0..20).map(patch).collect()
}
