//! Drift detection by field ownership: the API server records the manager of each field
//! (server-side apply, `metadata.managedFields`). A manager that changes or removes a field takes
//! it from the operator. Fields that others add are no drift. Pure.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knative_operator_shared::label::{DIGEST, OWNER_DIGEST};
use serde_json::Value;

use super::managed_fields::{Path, owned_fields};
use super::preserve;
use knative_operator_objects::Digest;

/// A hash of the owned fields: it changes when the operator loses or regains one.
pub fn fingerprint(meta: &ObjectMeta) -> u64 {
    let mut hasher = DefaultHasher::new();
    owned_fields(meta).map(ToString::to_string).hash(&mut hasher);
    hasher.finish()
}

/// The digest in the object's annotation.
pub fn digest(meta: &ObjectMeta) -> Option<Digest> {
    meta.annotations.as_ref()?.get(DIGEST).map(|stored| Digest::parse(stored).unwrap_or(Digest::of(stored)))
}

/// The mark of the owner in the object's annotation.
pub fn mark(meta: &ObjectMeta) -> Option<&str> {
    meta.annotations.as_ref()?.get(OWNER_DIGEST).map(String::as_str)
}

/// Path of the first field of `desired` that the operator doesn't own any more; `None` if it owns
/// all. `fields` are the owned ones. Fields that Knative's controllers always write, and
/// `others_fields`, don't count.
pub fn first_lost_field(fields: &Value, desired: Value, others_fields: &BTreeSet<Path>) -> Option<String> {
    let mut claimed = desired;
    preserve::remove_contended_fields(&mut claimed);
    preserve::remove_fields(&mut claimed, others_fields);
    let Value::Object(top) = &claimed else { return None };
    top.iter().filter(|(key, _)| !matches!(key.as_str(), "apiVersion" | "kind" | "status")).find_map(|(key, value)| {
        if key != "metadata" {
            return lost_in_field(fields, key, value, key);
        }
        // Name and namespace have no owner.
        let metadata = fields.get("f:metadata").unwrap_or(&Value::Null);
        ["labels", "annotations", "ownerReferences"].iter().find_map(|part| {
            let is_empty = |v: &Value| v.is_null() || v.as_object().is_some_and(serde_json::Map::is_empty);
            let value = value.get(part).filter(|value| !is_empty(value))?;
            lost_in_field(metadata, part, value, &format!("metadata.{part}"))
        })
    })
}

fn lost_in_field(fields: &Value, key: &str, desired: &Value, path: &str) -> Option<String> {
    match fields.get(format!("f:{key}")) {
        Some(fields) => lost_field(fields, desired, path),
        None => Some(path.to_owned()),
    }
}

fn lost_field(fields: &Value, desired: &Value, path: &str) -> Option<String> {
    // An atomic field has no parts.
    if fields.as_object().is_none_or(serde_json::Map::is_empty) {
        return None;
    }
    match desired {
        Value::Object(parts) => parts
            .iter()
            .filter(|(_, part)| !part.is_null())
            .find_map(|(key, part)| lost_in_field(fields, key, part, &format!("{path}.{key}"))),
        Value::Array(items) => items.iter().find_map(|item| lost_in_item(fields, item, path)),
        _ => None,
    }
}

/// Checks an item of a list, which is owned as a value of a set, or by its merge keys.
fn lost_in_item(fields: &Value, item: &Value, path: &str) -> Option<String> {
    let mut lost = Some(path.to_owned());
    for (key, fields) in fields.as_object().into_iter().flatten() {
        if let Some(value) = key.strip_prefix("v:") {
            if serde_json::from_str::<Value>(value).is_ok_and(|v| v == *item) {
                return None;
            }
            continue;
        }
        let Some(keys) = key.strip_prefix("k:").and_then(|k| serde_json::from_str::<Value>(k).ok()) else { continue };
        // Defaulted merge keys (a port's protocol) are not in the applied object.
        if keys.as_object().into_iter().flatten().all(|(k, v)| item.get(k).is_none_or(|own| own == v)) {
            lost = Some(lost_field(fields, item, &format!("{path}{}", preserve::display_keys(&keys)))?);
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::managed_fields::last_other_manager;
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
    fn lost_field_is_drift() {
        assert_eq!(first_lost_field(&fields(), deployment(), &BTreeSet::new()), None);
        for (pointer, path) in [
            ("/f:metadata/f:labels/f:l", "metadata.labels.l"),
            ("/f:metadata/f:ownerReferences/k:{\"uid\":\"u\"}", "metadata.ownerReferences"),
            (
                "/f:spec/f:template/f:spec/f:containers/k:{\"name\":\"c\"}/f:args",
                "spec.template.spec.containers[name=c].args",
            ),
            (
                "/f:spec/f:template/f:spec/f:containers/k:{\"name\":\"c\"}/f:env/k:{\"name\":\"E\"}/f:value",
                "spec.template.spec.containers[name=c].env[name=E].value",
            ),
            (
                "/f:spec/f:template/f:spec/f:containers/k:{\"name\":\"c\"}/f:ports/k:{\"containerPort\":80,\"protocol\":\"TCP\"}",
                "spec.template.spec.containers[name=c].ports",
            ),
        ] {
            let (parent, key) = pointer.rsplit_once('/').unwrap();
            let mut fields = fields();
            let parent = fields.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            assert!(parent.remove(key).is_some(), "{pointer}");
            parent.insert(".".to_owned(), json!({}));
            assert_eq!(first_lost_field(&fields, deployment(), &BTreeSet::new()).as_deref(), Some(path));
        }
        assert!(first_lost_field(&Value::Null, deployment(), &BTreeSet::new()).is_some());
    }

    #[test]
    fn last_other_manager_is_found() {
        let entry = |manager: &str, subresource: &str, second: u8| json!({"manager": manager, "operation": "Update", "subresource": subresource, "time": format!("2026-01-01T10:00:0{second}Z")});
        let own = json!({"manager": "knative-operator", "operation": "Apply", "time": "2026-01-01T10:00:09Z"});
        let fields = json!([
            entry("kubectl", "scale", 2),
            entry("someone", "", 1),
            entry("kube-controller-manager", "status", 8),
            own
        ]);
        let meta: ObjectMeta = serde_json::from_value(json!({"managedFields": fields})).unwrap();
        assert_eq!(last_other_manager(&meta).as_deref(), Some("kubectl"));
        assert_eq!(last_other_manager(&ObjectMeta::default()), None);
    }

    #[test]
    fn contended_field_is_no_drift() {
        let covers =
            |fields: Value, desired: &Value| first_lost_field(&fields, desired.clone(), &BTreeSet::new()).is_none();
        let webhook = json!({"kind": "ValidatingWebhookConfiguration", "webhooks": [{"name": "w", "rules": [], "failurePolicy": "Fail"}]});
        assert!(covers(
            json!({"f:webhooks": {"k:{\"name\":\"w\"}": {".": {}, "f:name": {}, "f:failurePolicy": {}}}}),
            &webhook
        ));
        assert!(!covers(json!({"f:webhooks": {"k:{\"name\":\"w\"}": {".": {}, "f:name": {}}}}), &webhook));
        let others_fields = [vec!["f:spec".to_owned(), "f:template".to_owned()]].into();
        let desired = json!({"spec": {"a": 1, "template": {"b": 2}}});
        assert_eq!(first_lost_field(&json!({"f:spec": {"f:a": {}}}), desired, &others_fields), None);
    }
}
