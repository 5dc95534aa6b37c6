//! Objects that the Go operator applied: their fields become ours, as if we had applied them. What is not applied any more
//! is then taken away, as with any of our own (the same that `kubectl apply --server-side` does with client-side apply).
//! Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use knative_operator_shared::label::FIELD_MANAGER;
use serde_json::{Value, json};

use super::ownership::is_ours;

/// As whom the Go operator writes.
const GO_OPERATOR: &str = "manifestival";

/// The annotation of objects that the Go operator has created, and not only changed.
pub const CREATED: (&str, &str) = ("manifestival", "new");

/// Whether `entry` is about what the Go operator applied.
pub fn is_go(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(GO_OPERATOR) && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

/// Whether the Go operator holds fields of the object with `meta`.
pub fn is_due(meta: &ObjectMeta) -> bool {
    meta.managed_fields.iter().flatten().any(is_go)
}

/// The JSON patch (RFC 6902) that makes the Go operator's fields of the object with `meta` ours; none if it has none. It is
/// refused with a conflict if the object has changed since.
pub fn patch(meta: &ObjectMeta) -> Option<Value> {
    let entries = meta.managed_fields.as_ref()?;
    let (go, mut others): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(is_go);
    let mut merged = go.first()?.clone();
    let ours: Vec<_> = others.iter().filter(|e| is_ours(e)).cloned().collect();
    others.retain(|e| !is_ours(e));
    for more in go.iter().skip(1).chain(&ours) {
        if let (Some(fields), Some(more)) = (&mut merged.fields_v1, &more.fields_v1) {
            unite(&mut fields.0, &more.0);
        }
    }
    (merged.manager, merged.operation) = (Some(FIELD_MANAGER.to_owned()), Some("Apply".to_owned()));
    others.push(merged);
    Some(replace_managed_fields(meta, &others))
}

/// The JSON patch that makes `entries` the managed fields of the object with `meta`. The API server refuses it with a conflict if the object has
/// changed since.
pub fn replace_managed_fields(meta: &ObjectMeta, entries: &[ManagedFieldsEntry]) -> Value {
    json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": meta.resource_version},
    ])
}

fn unite(fields: &mut Value, more: &Value) {
    let (Value::Object(fields), Value::Object(more)) = (fields, more) else { return };
    for (key, value) in more {
        unite(fields.entry(key.clone()).or_insert_with(|| json!({})), value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_go_operators_fields_become_ours_and_others_stay() {
        let entry = |manager: &str, operation: &str, subresource: &str, fields: Value| json!({"manager": manager, "operation": operation, "subresource": subresource, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
        let meta: ObjectMeta = serde_json::from_value(json!({"resourceVersion": "7", "managedFields": [
            entry("kubectl", "Update", "", json!({"f:a": {}})),
            entry(GO_OPERATOR, "Update", "", json!({"f:spec": {"f:b": {}}})),
            entry(GO_OPERATOR, "Update", "", json!({"f:spec": {"f:c": {}}})),
            entry(FIELD_MANAGER, "Apply", "", json!({"f:d": {}})),
            entry(FIELD_MANAGER, "Update", "status", json!({"f:status": {}})),
        ]}))
        .unwrap();
        assert!(is_due(&meta));
        let patch = patch(&meta).unwrap();
        let entries = patch[0]["value"].as_array().unwrap();
        assert_eq!(entries.len(), 3);
        assert_eq!((&entries[2]["manager"], &entries[2]["operation"]), (&json!(FIELD_MANAGER), &json!("Apply")));
        assert_eq!(entries[2]["fieldsV1"], json!({"f:spec": {"f:b": {}, "f:c": {}}, "f:d": {}}));
        assert_eq!(patch[1]["value"], "7");
        assert!(super::patch(&ObjectMeta::default()).is_none());
    }
}
