//! Removes duplicates: a release may have an object several times.

use std::collections::HashMap;

use knative_operator_shared::label::APP_VERSION;
use serde_json::Value;

use knative_operator_objects::CompactObject;
use knative_operator_objects::ObjectId;

/// Whether a label of a Namespace belongs to a single manifest: it names the manifest, or affects
/// its Pods. A release's Namespaces become one, and the last one decides these labels, as with the
/// Go operator.
fn belongs_to_one_manifest(key: &str) -> bool {
    key == APP_VERSION || key.ends_with("/release") || key == "istio-injection"
}

/// Keeps each object once: the later one, at the position of the first. Labels and annotations of
/// Namespaces are merged.
pub fn deduplicate(objects: Vec<CompactObject>) -> Vec<CompactObject> {
    let mut positions: HashMap<ObjectId, usize> = HashMap::new();
    let mut unique: Vec<CompactObject> = Vec::with_capacity(objects.len());
    for object in objects {
        let id = object.id().clone();
        let Some(&position) = positions.get(&id) else {
            positions.insert(id, unique.len());
            unique.push(object);
            continue;
        };
        unique[position] =
            if id.kind == "Namespace" { merge_namespaces(&unique[position].parse(), object.parse()) } else { object };
    }
    unique
}

fn merge_namespaces(earlier: &Value, mut later: Value) -> CompactObject {
    for field in ["labels", "annotations"] {
        for (key, value) in earlier["metadata"][field].as_object().into_iter().flatten() {
            if belongs_to_one_manifest(key) {
                continue;
            }
            let entry = &mut later["metadata"][field][key];
            if entry.is_null() {
                *entry = value.clone();
            }
        }
    }
    CompactObject::new(&later)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn later_object_wins_and_namespaces_merge() {
        let object = |kind: &str, labels: Value| {
            CompactObject::new(&json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", "labels": labels}}))
        };
        let unique = deduplicate(vec![
            object(
                "Namespace",
                json!({"a": "1", "b": "1", "x.knative.dev/release": "v1", "istio-injection": "enabled"}),
            ),
            object("ConfigMap", json!({"a": "1"})),
            object("Namespace", json!({"b": "2", "c": "2"})),
            object("ConfigMap", json!({"b": "2"})),
        ]);
        assert_eq!(unique.len(), 2);
        assert_eq!(unique[0].parse()["metadata"]["labels"], json!({"a": "1", "b": "2", "c": "2"}));
        assert_eq!(unique[1].parse()["metadata"]["labels"], json!({"b": "2"}));
    }
}
