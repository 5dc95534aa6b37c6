//! Releases repeat objects: each is applied once.

use std::collections::HashMap;

use knative_operator_shared::label::APP_VERSION;
use serde_json::Value;

use crate::object::ObjectId;
use crate::packed::Packed;

/// Labels of Namespaces by which a manifest names itself, or asks for something on behalf of its own pods. All the
/// Namespaces of a release become one: the last of them decides about these, as with the Go operator.
fn of_one_manifest(key: &str) -> bool {
    key == APP_VERSION || key.ends_with("/release") || key == "istio-injection"
}

/// Each object once: the later one wins, in the place of the first; labels and annotations of Namespaces are united.
pub fn once(objects: Vec<Packed>) -> Vec<Packed> {
    let mut places: HashMap<ObjectId, usize> = HashMap::new();
    let mut kept: Vec<Packed> = Vec::with_capacity(objects.len());
    for object in objects {
        let id = object.id().clone();
        let Some(&place) = places.get(&id) else {
            places.insert(id, kept.len());
            kept.push(object);
            continue;
        };
        kept[place] = if id.kind == "Namespace" { united(&kept[place].open(), object.open()) } else { object };
    }
    kept
}

fn united(earlier: &Value, mut later: Value) -> Packed {
    for field in ["labels", "annotations"] {
        for (key, value) in earlier["metadata"][field].as_object().into_iter().flatten() {
            if of_one_manifest(key) {
                continue;
            }
            let entry = &mut later["metadata"][field][key];
            if entry.is_null() {
                *entry = value.clone();
            }
        }
    }
    Packed::new(&later)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_later_wins_and_namespaces_unite() {
        let object = |kind: &str, labels: Value| {
            Packed::new(&json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": "x", "labels": labels}}))
        };
        let kept = once(vec![
            object(
                "Namespace",
                json!({"a": "1", "b": "1", "x.knative.dev/release": "v1", "istio-injection": "enabled"}),
            ),
            object("ConfigMap", json!({"a": "1"})),
            object("Namespace", json!({"b": "2", "c": "2"})),
            object("ConfigMap", json!({"b": "2"})),
        ]);
        assert_eq!(kept.len(), 2);
        assert_eq!(kept[0].open()["metadata"]["labels"], json!({"a": "1", "b": "2", "c": "2"}));
        assert_eq!(kept[1].open()["metadata"]["labels"], json!({"b": "2"}));
    }
}
