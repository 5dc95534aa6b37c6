//! Whether an object still is as it was applied: the API server keeps book of whose each field is (server-side apply,
//! `metadata.managedFields`). Whoever changes or removes a field of ours takes it from us. What others add stays theirs. Pure.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use knative_operator_shared::label::{DIGEST, FIELD_MANAGER};
use serde_json::Value;

use super::preserve::{self, Path};
use crate::object::Digest;

/// The fields of the object with `meta` that are ours, in the API server's own form (`FieldsV1`).
pub fn ours(meta: &ObjectMeta) -> Option<&Value> {
    let entry = meta.managed_fields.iter().flatten().find(|entry| is_ours(entry));
    entry.and_then(|e| e.fields_v1.as_ref()).map(|fields| &fields.0)
}

/// Whether `entry` is about what we applied.
pub fn is_ours(entry: &ManagedFieldsEntry) -> bool {
    entry.operation.as_deref() == Some("Apply")
        && entry.manager.as_deref() == Some(FIELD_MANAGER)
        && entry.subresource.as_deref().unwrap_or_default().is_empty()
}

/// A number that changes when fields of ours are taken from us, or come back.
pub fn fingerprint(meta: &ObjectMeta) -> u64 {
    let mut hasher = DefaultHasher::new();
    ours(meta).map(ToString::to_string).hash(&mut hasher);
    hasher.finish()
}

/// Who wrote last to the object with `meta` beside us, its status left out.
pub fn other(meta: &ObjectMeta) -> Option<String> {
    let others =
        meta.managed_fields.iter().flatten().filter(|e| e.subresource.as_deref() != Some("status") && !is_ours(e));
    let last = others.max_by_key(|e| e.time.as_ref().map(|t| t.0));
    last.and_then(|e| e.manager.clone()).filter(|m| !m.is_empty())
}

/// The digest of what was applied, as the object itself carries it.
pub fn digest(meta: &ObjectMeta) -> Option<Digest> {
    meta.annotations.as_ref()?.get(DIGEST).map(|stored| Digest::read(stored).unwrap_or(Digest::of(stored)))
}

/// Whether every field of `desired` is among those of ours, `fields`, but for what others may write: in general, and at `taken`.
pub fn covers(fields: &Value, desired: Value, taken: &BTreeSet<Path>) -> bool {
    let mut claimed = desired;
    preserve::disclaim(&mut claimed);
    preserve::leave_out(&mut claimed, taken);
    let Value::Object(top) = &claimed else { return true };
    top.iter().filter(|(key, _)| !matches!(key.as_str(), "apiVersion" | "kind" | "status")).all(|(key, value)| {
        if key != "metadata" {
            return fields.get(format!("f:{key}")).is_some_and(|f| within(f, value));
        }
        // Name and namespace belong to nobody.
        let metadata = fields.get("f:metadata").unwrap_or(&Value::Null);
        ["labels", "annotations", "ownerReferences"].iter().all(|part| {
            let empty = |v: &Value| v.is_null() || v.as_object().is_some_and(serde_json::Map::is_empty);
            value.get(part).is_none_or(|v| empty(v) || metadata.get(format!("f:{part}")).is_some_and(|f| within(f, v)))
        })
    })
}

fn within(fields: &Value, desired: &Value) -> bool {
    // A field that is one whole has no parts.
    if fields.as_object().is_none_or(serde_json::Map::is_empty) {
        return true;
    }
    match desired {
        Value::Object(parts) => parts
            .iter()
            .all(|(key, part)| part.is_null() || fields.get(format!("f:{key}")).is_some_and(|f| within(f, part))),
        Value::Array(items) => items.iter().all(|item| listed(fields, item)),
        _ => true,
    }
}

/// Whether `item` is one of a list's: a value of a set, or what has the same keys.
fn listed(fields: &Value, item: &Value) -> bool {
    fields.as_object().into_iter().flatten().any(|(key, fields)| {
        if let Some(value) = key.strip_prefix("v:") {
            return serde_json::from_str::<Value>(value).is_ok_and(|v| v == *item);
        }
        // Keys that were filled in (a port's protocol) are not in what was applied.
        let Some(keys) = key.strip_prefix("k:").and_then(|k| serde_json::from_str::<Value>(k).ok()) else {
            return false;
        };
        let same = keys.as_object().into_iter().flatten().all(|(k, v)| item.get(k).is_none_or(|own| own == v));
        same && within(fields, item)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment() -> Value {
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {"name": "a", "namespace": "b", "labels": {"l": "1"}, "ownerReferences": [{"uid": "u", "kind": "X"}]},
            "spec": {"template": {"spec": {"containers": [{"name": "c", "env": [{"name": "E", "value": "1"}], "ports": [{"containerPort": 80}], "args": ["x"]}]}}},
        })
    }

    fn fields() -> Value {
        json!({
            "f:metadata": {"f:labels": {"f:l": {}}, "f:ownerReferences": {"k:{\"uid\":\"u\"}": {}}},
            "f:spec": {"f:template": {"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {
                ".": {}, "f:name": {}, "f:args": {},
                "f:env": {"k:{\"name\":\"E\"}": {".": {}, "f:name": {}, "f:value": {}}},
                "f:ports": {"k:{\"containerPort\":80,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}},
            }}}}},
        })
    }

    #[test]
    fn what_is_taken_from_us_is_missed() {
        assert!(covers(&fields(), deployment(), &BTreeSet::new()));
        for taken in [
            "/f:metadata/f:labels/f:l",
            "/f:metadata/f:ownerReferences/k:{\"uid\":\"u\"}",
            "/f:spec/f:template/f:spec/f:containers/k:{\"name\":\"c\"}/f:args",
            "/f:spec/f:template/f:spec/f:containers/k:{\"name\":\"c\"}/f:env/k:{\"name\":\"E\"}/f:value",
            "/f:spec/f:template/f:spec/f:containers/k:{\"name\":\"c\"}/f:ports/k:{\"containerPort\":80,\"protocol\":\"TCP\"}",
        ] {
            let (parent, key) = taken.rsplit_once('/').unwrap();
            let mut fields = fields();
            let parent = fields.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            assert!(parent.remove(key).is_some(), "{taken}");
            parent.insert(".".to_owned(), json!({}));
            assert!(!covers(&fields, deployment(), &BTreeSet::new()), "{taken}");
        }
        assert!(!covers(&Value::Null, deployment(), &BTreeSet::new()));
    }

    #[test]
    fn who_wrote_last_beside_us_is_known() {
        let entry = |manager: &str, subresource: &str, second: u8| json!({"manager": manager, "operation": "Update", "subresource": subresource, "time": format!("2026-01-01T10:00:0{second}Z")});
        let ours = json!({"manager": FIELD_MANAGER, "operation": "Apply", "time": "2026-01-01T10:00:09Z"});
        let fields = json!([
            entry("kubectl", "scale", 2),
            entry("someone", "", 1),
            entry("kube-controller-manager", "status", 8),
            ours
        ]);
        let meta: ObjectMeta = serde_json::from_value(json!({"managedFields": fields})).unwrap();
        assert_eq!(other(&meta).as_deref(), Some("kubectl"));
        assert_eq!(other(&ObjectMeta::default()), None);
    }

    #[test]
    fn what_others_may_write_is_not_missed() {
        let covers = |fields: Value, desired: &Value| covers(&fields, desired.clone(), &BTreeSet::new());
        let webhook = json!({"kind": "ValidatingWebhookConfiguration", "webhooks": [{"name": "w", "rules": [], "failurePolicy": "Fail"}]});
        assert!(covers(
            json!({"f:webhooks": {"k:{\"name\":\"w\"}": {".": {}, "f:name": {}, "f:failurePolicy": {}}}}),
            &webhook
        ));
        assert!(!covers(json!({"f:webhooks": {"k:{\"name\":\"w\"}": {".": {}, "f:name": {}}}}), &webhook));
        let taken = [vec!["f:spec".to_owned(), "f:template".to_owned()]].into();
        assert!(super::covers(
            &json!({"f:spec": {"f:a": {}}}),
            json!({"spec": {"a": 1, "template": {"b": 2}}}),
            &taken
        ));
    }
}
