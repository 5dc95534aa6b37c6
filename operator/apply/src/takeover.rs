//! Takes over the fields that the Go operator applied: they become this operator's, so that its
//! next apply removes what is no longer desired (as `kubectl apply --server-side` does after
//! client-side apply). Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knative_operator_shared::label::FIELD_MANAGER;
use serde_json::{Value, json};

use super::managed_fields::{is_go_operator_entry, is_operator_entry, replace_managed_fields};

/// Annotation of objects that the Go operator created, rather than changed.
pub const CREATED_ANNOTATION: (&str, &str) = ("manifestival", "new");

/// The JSON patch (RFC 6902) that transfers the Go operator's fields to this operator; `None` if it
/// owns none. The API server answers with a conflict if the object has changed since.
pub fn takeover_patch(meta: &ObjectMeta) -> Option<Value> {
    let entries = meta.managed_fields.as_ref()?;
    let (go_entries, mut others): (Vec<_>, Vec<_>) = entries.iter().cloned().partition(is_go_operator_entry);
    let mut merged = go_entries.first()?.clone();
    let own_entries: Vec<_> = others.iter().filter(|e| is_operator_entry(e)).cloned().collect();
    others.retain(|e| !is_operator_entry(e));
    for more in go_entries.iter().skip(1).chain(&own_entries) {
        if let (Some(fields), Some(more)) = (&mut merged.fields_v1, &more.fields_v1) {
            merge_fields(&mut fields.0, &more.0);
        }
    }
    (merged.manager, merged.operation) = (Some(FIELD_MANAGER.to_owned()), Some("Apply".to_owned()));
    others.push(merged);
    Some(replace_managed_fields(meta, &others))
}

fn merge_fields(fields: &mut Value, more: &Value) {
    let (Value::Object(fields), Value::Object(more)) = (fields, more) else { return };
    for (key, value) in more {
        merge_fields(fields.entry(key.clone()).or_insert_with(|| json!({})), value);
    }
}

#[cfg(test)]
mod tests {
    use super::super::managed_fields::has_go_operator_fields;
    use super::*;

    #[test]
    fn go_operator_fields_are_transferred_and_others_stay() {
        let entry = |manager: &str, operation: &str, subresource: &str, fields: Value| json!({"manager": manager, "operation": operation, "subresource": subresource, "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields});
        let meta: ObjectMeta = serde_json::from_value(json!({"resourceVersion": "7", "managedFields": [
            entry("kubectl", "Update", "", json!({"f:a": {}})),
            entry("manifestival", "Update", "", json!({"f:spec": {"f:b": {}}})),
            entry("manifestival", "Update", "", json!({"f:spec": {"f:c": {}}})),
            entry(FIELD_MANAGER, "Apply", "", json!({"f:d": {}})),
            entry(FIELD_MANAGER, "Update", "status", json!({"f:status": {}})),
        ]}))
        .unwrap();
        assert!(has_go_operator_fields(&meta));
        let takeover_patch = takeover_patch(&meta).unwrap();
        let entries = takeover_patch[0]["value"].as_array().unwrap();
        assert_eq!(entries.len(), 3);
        assert_eq!((&entries[2]["manager"], &entries[2]["operation"]), (&json!(FIELD_MANAGER), &json!("Apply")));
        assert_eq!(entries[2]["fieldsV1"], json!({"f:spec": {"f:b": {}, "f:c": {}}, "f:d": {}}));
        assert_eq!(takeover_patch[1]["value"], "7");
        assert!(super::takeover_patch(&ObjectMeta::default()).is_none());
    }
}
