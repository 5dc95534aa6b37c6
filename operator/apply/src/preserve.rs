//! Contended fields: fields of a release's objects that the release's own controllers write
//! (docs/user/compatibility.md lists them). Once another manager owns such a field, the operator
//! neither applies it nor counts it as drift. Pure.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use knative_operator_shared::label::FIELD_MANAGER;
use serde_json::{Value, json};

use super::managed_fields::{Path, is_go_operator_entry, is_operator_entry, replace_managed_fields};

/// Workloads whose replicas a controller sets: Eventing's own, and the scheduler of
/// eventing-kafka-broker.
const SCALED: [&str; 4] =
    ["pingsource-mt-adapter", "kafka-source-dispatcher", "kafka-channel-dispatcher", "kafka-broker-dispatcher"];
/// The workload whose environment Eventing's controller writes as a whole list.
const ADAPTER: &str = "pingsource-mt-adapter";
/// Fields that Knative's webhooks write to their own configurations, besides `caBundle`.
const WEBHOOK_FIELDS: [&str; 6] =
    ["rules", "namespaceSelector", "objectSelector", "matchPolicy", "reinvocationPolicy", "clientConfig"];

/// One step of a path to a field.
#[derive(Clone, Copy)]
enum Step {
    /// A field.
    Field(&'static str),
    /// Each item of a list with merge keys.
    Each,
}
use Step::{Each, Field};

const REPLICAS: &[Step] = &[Field("spec"), Field("replicas")];
const ENVIRONMENT: &[Step] =
    &[Field("spec"), Field("template"), Field("spec"), Field("containers"), Each, Field("env")];
const RULES: &[Step] = &[Field("webhooks"), Each, Field("rules")];
const NAMESPACES: &[Step] = &[Field("webhooks"), Each, Field("namespaceSelector")];
const OBJECTS: &[Step] = &[Field("webhooks"), Each, Field("objectSelector")];
const MATCHING: &[Step] = &[Field("webhooks"), Each, Field("matchPolicy")];
const REINVOCATION: &[Step] = &[Field("webhooks"), Each, Field("reinvocationPolicy")];
const PATH: &[Step] = &[Field("webhooks"), Each, Field("clientConfig"), Field("service"), Field("path")];

/// Paths of the fields that a controller may write, of an object of `kind` called `name`.
fn contended_paths(kind: &str, name: &str) -> &'static [&'static [Step]] {
    match kind {
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            &[RULES, NAMESPACES, OBJECTS, MATCHING, REINVOCATION, PATH]
        }
        "Deployment" if name == ADAPTER => &[REPLICAS, ENVIRONMENT],
        "Deployment" | "StatefulSet" if has_scaled_replicas(name) => &[REPLICAS],
        _ => &[],
    }
}

/// Whether a controller sets the replicas of the workload `name`.
pub fn has_scaled_replicas(name: &str) -> bool {
    SCALED.contains(&name)
}

/// Whether a controller may write fields of an object of `kind` called `name`.
pub fn has_contended_fields(kind: &str, name: &str) -> bool {
    !contended_paths(kind, name).is_empty()
}

/// Contended fields of the object with `meta` that another manager owns. The Go operator doesn't
/// count: its fields are taken over.
pub fn others_fields(kind: &str, meta: &ObjectMeta) -> BTreeSet<Path> {
    let mut others_fields = BTreeSet::new();
    let patterns = contended_paths(kind, meta.name.as_deref().unwrap_or_default());
    for entry in meta.managed_fields.iter().flatten().filter(|entry| is_other_manager(entry)) {
        let Some(fields) = &entry.fields_v1 else { continue };
        patterns.iter().for_each(|pattern| collect_paths(&fields.0, pattern, &mut Vec::new(), &mut others_fields));
    }
    others_fields
}

fn is_other_manager(entry: &ManagedFieldsEntry) -> bool {
    let ours = entry.manager.as_deref() == Some(FIELD_MANAGER) || is_go_operator_entry(entry);
    !ours && entry.subresource.as_deref() != Some("status")
}

fn collect_paths(fields: &Value, pattern: &[Step], path: &mut Path, found: &mut BTreeSet<Path>) {
    let Some((step, rest)) = pattern.split_first() else {
        found.insert(path.clone());
        return;
    };
    for (key, child) in fields.as_object().into_iter().flatten() {
        let matches = match step {
            Field(name) => key.strip_prefix("f:") == Some(name),
            Each => key.starts_with("k:"),
        };
        if matches {
            path.push(key.clone());
            collect_paths(child, rest, path, found);
            path.pop();
        }
    }
}

/// The JSON patch (RFC 6902) that gives up the operator's ownership of `paths`; `None` if it owns
/// none. The API server answers with a conflict if the object has changed since.
pub fn relinquish(meta: &ObjectMeta, paths: &BTreeSet<Path>) -> Option<Value> {
    let mut entries = meta.managed_fields.clone()?;
    let mut changed = false;
    for fields in
        entries.iter_mut().filter(|entry| is_operator_entry(entry)).filter_map(|entry| entry.fields_v1.as_mut())
    {
        for path in paths {
            let (last, parents) = path.split_last()?;
            let parent = parents.iter().try_fold(&mut fields.0, |at, key| at.get_mut(key));
            changed |= parent.and_then(Value::as_object_mut).is_some_and(|parent| parent.remove(last).is_some());
        }
    }
    changed.then(|| replace_managed_fields(meta, &entries))
}

/// Removes the fields at `paths` from `object`.
pub fn remove_fields(object: &mut Value, paths: &BTreeSet<Path>) {
    for path in paths {
        let Some((last, parents)) = path.split_last() else { continue };
        if let Some(parent) = parents.iter().try_fold(&mut *object, |at, key| step(at, key))
            && let (Some(fields), Some(name)) = (parent.as_object_mut(), last.strip_prefix("f:"))
        {
            fields.remove(name);
        }
    }
}

/// Copies the fields at `paths` from `live` to `object`, which an apply leaves unchanged.
pub fn copy_fields(object: &mut Value, live: &mut Value, paths: &BTreeSet<Path>) {
    for path in paths {
        let Some((last, parents)) = path.split_last() else { continue };
        let found = path.iter().try_fold(&mut *live, |at, key| step(at, key)).cloned();
        let parent = parents.iter().try_fold(&mut *object, |at, key| step(at, key)).filter(|parent| parent.is_object());
        if let (Some(parent), Some(name), Some(found)) = (parent, last.strip_prefix("f:"), found) {
            parent[name] = found;
        }
    }
}

fn step<'v>(value: &'v mut Value, key: &str) -> Option<&'v mut Value> {
    if let Some(name) = key.strip_prefix("f:") {
        return value.get_mut(name);
    }
    let keys: Value = serde_json::from_str(key.strip_prefix("k:")?).ok()?;
    let same = |item: &Value| keys.as_object().into_iter().flatten().all(|(key, value)| item.get(key) == Some(value));
    value.as_array_mut()?.iter_mut().find(|item| same(item))
}

/// Removes the fields that are never drift: those that Knative's webhooks write to their
/// configurations, and replicas that a controller sets.
pub fn remove_contended_fields(object: &mut Value) {
    let text = |field: &str| object.pointer(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    match text("/kind").as_str() {
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(fields) = webhook.as_object_mut() {
                    fields.retain(|key, _| !WEBHOOK_FIELDS.contains(&key.as_str()));
                }
            }
        }
        "Deployment" | "StatefulSet" if has_scaled_replicas(&text("/metadata/name")) => {
            object["spec"].as_object_mut().and_then(|spec| spec.remove("replicas"));
        }
        _ => {}
    }
}

/// Whether `error` reports that other managers own fields of the object.
pub fn is_conflict(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 409 && causes.into_iter().any(|cause| cause.reason == "FieldManagerConflict")
}

/// `path` for logs: `spec.template.spec.containers[name=a].env`.
pub fn display_path(path: &Path) -> String {
    let mut text = String::new();
    for key in path {
        match (key.strip_prefix("f:"), key.strip_prefix("k:")) {
            (Some(name), _) => text = if text.is_empty() { name.to_owned() } else { format!("{text}.{name}") },
            (_, Some(keys)) => text += &display_keys(&serde_json::from_str(keys).unwrap_or_else(|_| json!({}))),
            _ => {}
        }
    }
    text
}

/// Merge keys as part of a path: `[name=a]`.
pub fn display_keys(keys: &Value) -> String {
    let shown = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let keys = keys.as_object().into_iter().flatten().map(|(key, value)| format!("{key}={}", shown(value)));
    format!("[{}]", keys.collect::<Vec<_>>().join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONTAINER: &str = "k:{\"name\":\"dispatcher\"}";

    fn entry(manager: &str, operation: &str, fields: &Value) -> Value {
        json!({"manager": manager, "operation": operation, "apiVersion": "apps/v1", "fieldsType": "FieldsV1", "fieldsV1": fields})
    }

    fn environment(names: &[&str]) -> Value {
        let variables: serde_json::Map<_, _> = names
            .iter()
            .map(|name| (format!("k:{{\"name\":\"{name}\"}}"), json!({".": {}, "f:name": {}, "f:value": {}})))
            .collect();
        json!({"f:spec": {"f:replicas": {}, "f:template": {"f:spec": {"f:containers": {CONTAINER: {".": {}, "f:name": {}, "f:env": variables}}}}}})
    }

    fn adapter(entries: &[Value]) -> ObjectMeta {
        serde_json::from_value(json!({"name": ADAPTER, "resourceVersion": "7", "managedFields": entries})).unwrap()
    }

    #[test]
    fn list_written_by_controller_is_left_to_it() {
        let ours = entry(FIELD_MANAGER, "Apply", &environment(&["NAMESPACE"]));
        let meta = adapter(&[ours.clone(), entry("controller", "Update", &environment(&["K_LOGGING_CONFIG"]))]);
        let others_fields = others_fields("Deployment", &meta);
        assert_eq!(
            others_fields.iter().map(display_path).collect::<Vec<_>>(),
            ["spec.replicas", "spec.template.spec.containers[name=dispatcher].env"]
        );
        let mut desired = json!({"spec": {"replicas": 0, "paused": false, "template": {"spec": {"containers": [{"name": "dispatcher", "image": "i", "env": [{"name": "POD_NAME"}]}]}}}});
        let before = desired.clone();
        remove_fields(&mut desired, &others_fields);
        assert_eq!(
            desired,
            json!({"spec": {"paused": false, "template": {"spec": {"containers": [{"name": "dispatcher", "image": "i"}]}}}})
        );
        let mut live = json!({"spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "dispatcher", "env": [{"name": "NAMESPACE"}]}]}}}});
        let mut copied = before;
        copy_fields(&mut copied, &mut live, &others_fields);
        assert_eq!(
            (&copied["spec"]["replicas"], &copied["spec"]["template"]["spec"]["containers"][0]["env"]),
            (&json!(1), &json!([{"name": "NAMESPACE"}]))
        );
        let patch = relinquish(&meta, &others_fields).unwrap();
        assert_eq!(
            patch[0]["value"][0]["fieldsV1"],
            json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {CONTAINER: {".": {}, "f:name": {}}}}}}})
        );
        assert_eq!((&patch[0]["value"][1]["manager"], &patch[1]["value"]), (&json!("controller"), &json!("7")));
        // No other manager has written it.
        assert_eq!(
            super::others_fields(
                "Deployment",
                &adapter(&[ours.clone(), entry("manifestival", "Update", &environment(&["A"]))])
            ),
            BTreeSet::new()
        );
        assert_eq!(relinquish(&adapter(&[entry("controller", "Update", &environment(&["A"]))]), &others_fields), None);
    }

    #[test]
    fn webhook_rules_are_never_drift() {
        let webhook = |fields: Value| json!({"kind": "MutatingWebhookConfiguration", "metadata": {"name": "w"}, "webhooks": [fields]});
        let mut desired = webhook(
            json!({"name": "w", "rules": [], "matchPolicy": "Exact", "reinvocationPolicy": "Never", "failurePolicy": "Fail"}),
        );
        remove_contended_fields(&mut desired);
        assert_eq!(desired, webhook(json!({"name": "w", "failurePolicy": "Fail"})));
        let mut scaled = json!({"kind": "StatefulSet", "metadata": {"name": "kafka-source-dispatcher"}, "spec": {"replicas": 0, "paused": true}});
        remove_contended_fields(&mut scaled);
        assert_eq!(scaled["spec"], json!({"paused": true}));
    }
}
