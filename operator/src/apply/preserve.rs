//! Fields of a release's objects that the release's own controllers write (docs/compatibility.md lists who writes what). Once another field
//! manager owns such a field it is that manager's: it is neither applied nor missed. Pure.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, ObjectMeta};
use knative_operator_shared::label::FIELD_MANAGER;
use serde_json::{Value, json};

use super::{ownership, takeover};

/// Workloads whose replicas a controller sets: Eventing's own, and the scheduler of eventing-kafka-broker.
const SCALED: [&str; 4] =
    ["pingsource-mt-adapter", "kafka-source-dispatcher", "kafka-channel-dispatcher", "kafka-broker-dispatcher"];
/// The workload whose environment Eventing's controller writes as a whole list.
const ADAPTER: &str = "pingsource-mt-adapter";
/// What Knative's webhooks write to their own configurations, beside `caBundle`.
const WEBHOOK_FIELDS: [&str; 6] =
    ["rules", "namespaceSelector", "objectSelector", "matchPolicy", "reinvocationPolicy", "clientConfig"];

/// One step to a field, from its parent.
#[derive(Clone, Copy)]
enum Step {
    /// A field.
    Field(&'static str),
    /// Each item of a list of named items.
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

/// The fields of an object of `kind` called `name` that a controller may write.
fn contended(kind: &str, name: &str) -> &'static [&'static [Step]] {
    match kind {
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            &[RULES, NAMESPACES, OBJECTS, MATCHING, REINVOCATION, PATH]
        }
        "Deployment" if name == ADAPTER => &[REPLICAS, ENVIRONMENT],
        "Deployment" | "StatefulSet" if is_scaled(name) => &[REPLICAS],
        _ => &[],
    }
}

/// Whether a controller sets the replicas of the workload called `name`.
pub fn is_scaled(name: &str) -> bool {
    SCALED.contains(&name)
}

/// Whether a controller may write fields of an object of `kind` called `name`.
pub fn is_contended(kind: &str, name: &str) -> bool {
    !contended(kind, name).is_empty()
}

/// A field, as `metadata.managedFields` spells the way to it: `f:spec`, `k:{"name":"a"}`, ….
pub type Path = Vec<String>;

/// The contended fields of the object of `kind` with `meta` that another manager owns. The Go operator is no other: its fields become ours.
pub fn taken(kind: &str, meta: &ObjectMeta) -> BTreeSet<Path> {
    let mut taken = BTreeSet::new();
    let patterns = contended(kind, meta.name.as_deref().unwrap_or_default());
    for entry in meta.managed_fields.iter().flatten().filter(|entry| is_others(entry)) {
        let Some(fields) = &entry.fields_v1 else { continue };
        patterns.iter().for_each(|pattern| find(&fields.0, pattern, &mut Vec::new(), &mut taken));
    }
    taken
}

fn is_others(entry: &ManagedFieldsEntry) -> bool {
    let ours = entry.manager.as_deref() == Some(FIELD_MANAGER) || takeover::is_go(entry);
    !ours && entry.subresource.as_deref() != Some("status")
}

fn find(fields: &Value, pattern: &[Step], way: &mut Path, found: &mut BTreeSet<Path>) {
    let Some((step, rest)) = pattern.split_first() else {
        found.insert(way.clone());
        return;
    };
    for (key, child) in fields.as_object().into_iter().flatten() {
        let fits = match step {
            Field(name) => key.strip_prefix("f:") == Some(name),
            Each => key.starts_with("k:"),
        };
        if fits {
            way.push(key.clone());
            find(child, rest, way, found);
            way.pop();
        }
    }
}

/// The JSON patch (RFC 6902) after which we own none of `paths` of the object with `meta`; none if that is so. The API server refuses it
/// with a conflict if the object has changed since.
pub fn disown(meta: &ObjectMeta, paths: &BTreeSet<Path>) -> Option<Value> {
    let mut entries = meta.managed_fields.clone()?;
    let mut changed = false;
    for fields in
        entries.iter_mut().filter(|entry| ownership::is_ours(entry)).filter_map(|entry| entry.fields_v1.as_mut())
    {
        for path in paths {
            let (last, parents) = path.split_last()?;
            let parent = parents.iter().try_fold(&mut fields.0, |at, key| at.get_mut(key));
            changed |= parent.and_then(Value::as_object_mut).is_some_and(|parent| parent.remove(last).is_some());
        }
    }
    changed.then(|| takeover::replace_managed_fields(meta, &entries))
}

/// Takes the fields at `paths` out of `object`.
pub fn leave_out(object: &mut Value, paths: &BTreeSet<Path>) {
    for path in paths {
        let Some((last, parents)) = path.split_last() else { continue };
        if let Some(parent) = parents.iter().try_fold(&mut *object, |at, key| step(at, key))
            && let (Some(fields), Some(name)) = (parent.as_object_mut(), last.strip_prefix("f:"))
        {
            fields.remove(name);
        }
    }
}

/// Gives `object` what `live` has at `paths`: what applying it leaves as it is.
pub fn copy(object: &mut Value, live: &mut Value, paths: &BTreeSet<Path>) {
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

/// `object` without what is never missed: the fields that Knative's webhooks write to their configurations, and replicas that a controller
/// sets.
pub fn disclaim(object: &mut Value) {
    let text = |field: &str| object.pointer(field).and_then(Value::as_str).unwrap_or_default().to_owned();
    match text("/kind").as_str() {
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            for webhook in object.get_mut("webhooks").and_then(Value::as_array_mut).into_iter().flatten() {
                if let Some(fields) = webhook.as_object_mut() {
                    fields.retain(|key, _| !WEBHOOK_FIELDS.contains(&key.as_str()));
                }
            }
        }
        "Deployment" | "StatefulSet" if is_scaled(&text("/metadata/name")) => {
            object["spec"].as_object_mut().and_then(|spec| spec.remove("replicas"));
        }
        _ => {}
    }
}

/// Whether `error` says that fields of the object belong to other managers.
pub fn is_conflict(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    let causes = status.details.iter().flat_map(|details| &details.causes);
    status.code == 409 && causes.into_iter().any(|cause| cause.reason == "FieldManagerConflict")
}

/// The name of `path` for logs: `spec.template.spec.containers[name=a].env`.
pub fn shown(path: &Path) -> String {
    let mut text = String::new();
    for key in path {
        match (key.strip_prefix("f:"), key.strip_prefix("k:")) {
            (Some(name), _) => text = if text.is_empty() { name.to_owned() } else { format!("{text}.{name}") },
            (_, Some(keys)) => {
                let keys: Value = serde_json::from_str(keys).unwrap_or_else(|_| json!({}));
                let keys: Vec<_> = keys
                    .as_object()
                    .into_iter()
                    .flatten()
                    .map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()))
                    .collect();
                text = format!("{text}[{}]", keys.join(","));
            }
            _ => {}
        }
    }
    text
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
    fn list_that_the_controller_has_written_is_the_controllers() {
        let ours = entry(FIELD_MANAGER, "Apply", &environment(&["NAMESPACE"]));
        let meta = adapter(&[ours.clone(), entry("controller", "Update", &environment(&["K_LOGGING_CONFIG"]))]);
        let taken = taken("Deployment", &meta);
        assert_eq!(
            taken.iter().map(shown).collect::<Vec<_>>(),
            ["spec.replicas", "spec.template.spec.containers[name=dispatcher].env"]
        );
        let mut desired = json!({"spec": {"replicas": 0, "paused": false, "template": {"spec": {"containers": [{"name": "dispatcher", "image": "i", "env": [{"name": "POD_NAME"}]}]}}}});
        let before = desired.clone();
        leave_out(&mut desired, &taken);
        assert_eq!(
            desired,
            json!({"spec": {"paused": false, "template": {"spec": {"containers": [{"name": "dispatcher", "image": "i"}]}}}})
        );
        let mut live = json!({"spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "dispatcher", "env": [{"name": "NAMESPACE"}]}]}}}});
        let mut copied = before;
        copy(&mut copied, &mut live, &taken);
        assert_eq!(
            (&copied["spec"]["replicas"], &copied["spec"]["template"]["spec"]["containers"][0]["env"]),
            (&json!(1), &json!([{"name": "NAMESPACE"}]))
        );
        let patch = disown(&meta, &taken).unwrap();
        assert_eq!(
            patch[0]["value"][0]["fieldsV1"],
            json!({"f:spec": {"f:template": {"f:spec": {"f:containers": {CONTAINER: {".": {}, "f:name": {}}}}}}})
        );
        assert_eq!((&patch[0]["value"][1]["manager"], &patch[1]["value"]), (&json!("controller"), &json!("7")));
        // Nobody else has written it.
        assert_eq!(
            super::taken(
                "Deployment",
                &adapter(&[ours.clone(), entry("manifestival", "Update", &environment(&["A"]))])
            ),
            BTreeSet::new()
        );
        assert_eq!(disown(&adapter(&[entry("controller", "Update", &environment(&["A"]))]), &taken), None);
    }

    #[test]
    fn rules_of_webhooks_are_never_missed() {
        let webhook = |fields: Value| json!({"kind": "MutatingWebhookConfiguration", "metadata": {"name": "w"}, "webhooks": [fields]});
        let mut desired = webhook(
            json!({"name": "w", "rules": [], "matchPolicy": "Exact", "reinvocationPolicy": "Never", "failurePolicy": "Fail"}),
        );
        disclaim(&mut desired);
        assert_eq!(desired, webhook(json!({"name": "w", "failurePolicy": "Fail"})));
        let mut scaled = json!({"kind": "StatefulSet", "metadata": {"name": "kafka-source-dispatcher"}, "spec": {"replicas": 0, "paused": true}});
        disclaim(&mut scaled);
        assert_eq!(scaled["spec"], json!({"paused": true}));
    }
}
