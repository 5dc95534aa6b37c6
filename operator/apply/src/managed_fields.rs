//! `metadata.managedFields`: the record of the API server, which manager owns which field. Pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use knative_operator_shared::label::FIELD_MANAGER;
use serde_json::{Value, json};

/// Field manager of the Go operator.
const GO_OPERATOR: &str = "manifestival";

/// A field path in the form of `metadata.managedFields`: `f:spec`, `k:{"name":"a"}`, ….
pub type Path = Vec<String>;

/// The fields that the operator owns of the object with `meta` (`FieldsV1`).
pub fn owned_fields(meta: &ObjectMeta) -> Option<&Value> {
    let entry = meta.managed_fields.iter().flatten().find(|entry| is_operator_entry(entry));
    entry.and_then(|e| e.fields_v1.as_ref()).map(|fields| &fields.0)
}

/// Whether `entry` records what the operator applied.
pub fn is_operator_entry(entry: &ManagedFieldsEntry) -> bool {
    entry.operation.as_deref() == Some("Apply")
        && entry.manager.as_deref() == Some(FIELD_MANAGER)
        && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

/// Whether `entry` records what the Go operator applied.
pub fn is_go_operator_entry(entry: &ManagedFieldsEntry) -> bool {
    entry.manager.as_deref() == Some(GO_OPERATOR) && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

/// Whether the Go operator owns fields of the object with `meta`.
pub fn has_go_operator_fields(meta: &ObjectMeta) -> bool {
    meta.managed_fields.iter().flatten().any(is_go_operator_entry)
}

/// The manager that wrote last to the object with `meta`, apart from the operator and status
/// updates.
pub fn last_other_manager(meta: &ObjectMeta) -> Option<String> {
    let others = meta
        .managed_fields
        .iter()
        .flatten()
        .filter(|e| e.subresource.as_deref() != Some("status") && !is_operator_entry(e));
    let last = others.max_by_key(|e| e.time.as_ref().map(|t| t.0));
    last.and_then(|e| e.manager.clone()).filter(|m| !m.is_empty())
}

/// The JSON patch that replaces the managed fields of the object with `meta`. The API server
/// answers with a conflict if the object has changed since.
pub fn replace_managed_fields(meta: &ObjectMeta, entries: &[ManagedFieldsEntry]) -> Value {
    json!([
        {"op": "replace", "path": "/metadata/managedFields", "value": entries},
        {"op": "replace", "path": "/metadata/resourceVersion", "value": meta.resource_version},
    ])
}
