//! The questions about a write: which clusters it targets, and what it sets that only some users
//! may set. An update is asked about only for what it changes or removes, so that a user can still
//! change other fields of what an administrator stored.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::Value;

use super::author;
use super::gates;
use super::permission::Permission;
use super::write::Write;
use crate::customize::{changes, fleet_changes};
use knative_operator_shared::api::fleet::Placement;
use knative_operator_shared::api::{ClusterProfileReference, Component, Kind};
use knative_operator_shared::fleet::placement;
use knative_operator_shared::label::{ADOPT, TAKE_OVER};

/// Maximum number of fields that a message names.
const MAX_NAMED: usize = 5;

/// Asks for a permission because of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Path of the field, or of several.
    pub field: String,
    /// The permission.
    pub permission: Permission,
}

impl Question {
    /// Asks for `permission` because of `field`.
    pub fn new(field: impl Into<String>, permission: Permission) -> Self {
        Self { field: field.into(), permission }
    }
}

/// The questions about `write`.
pub fn about(write: &Write<'_>) -> Vec<Question> {
    let (new, old) = (&write.new["spec"], &write.before()["spec"]);
    if let Kind::Component(component) = write.kind {
        let is_new = new["clusterProfileRef"] != old["clusterProfileRef"] || author::is_changed(write);
        let reference = (is_new || write.is_new_and_local()).then(|| of_cluster(new)).flatten();
        let content = of_content(component, write.namespace, &changes(component, old, new));
        let metadata = of_adoption(component, write).into_iter().chain(of_take_over(component, write));
        return reference.into_iter().chain(content).chain(metadata).collect();
    }
    let mut questions = Vec::new();
    if write.changes_clusters() || author::is_changed(write) {
        questions.extend(of_placement(&new["placement"], write.namespace));
    }
    for component in Component::ALL {
        let mut changed = fleet_changes(component, old, new);
        changed.extend(new_take_overs(component, old, new));
        questions.extend(of_content(component, write.namespace, &changed));
    }
    if gates::are_changed(old, new) {
        let permission = Permission::to_customize(Kind::Fleet.plural(), write.namespace);
        questions.push(Question::new("spec.rollout.stages[].gates", permission));
    }
    questions
}

/// The question about a resource that takes an installation over from another owner, of which
/// everything else is removed.
fn of_take_over(component: Component, write: &Write<'_>) -> Option<Question> {
    let value = |object: &Value| object["metadata"]["annotations"][TAKE_OVER].clone();
    let is_new = !value(write.new).is_null() && value(write.new) != value(write.before());
    let permission = Permission::to_customize(component.plural(), write.namespace);
    is_new.then(|| Question::new(format!("metadata.annotations[{TAKE_OVER}]"), permission))
}

/// The template or the override of a fleet that takes installations of `component` over.
fn new_take_overs(component: Component, old: &Value, new: &Value) -> Option<String> {
    let word = component.word();
    // Which clusters have which value: those of a selector, or all.
    let values = |spec: &Value| -> Vec<([Value; 2], Value)> {
        let overrides = spec["overrides"].as_array().into_iter().flatten();
        let selectors = |layer: &Value| ["clusterSelector", "propertySelector"].map(|field| layer[field].clone());
        let overrides = overrides.map(|layer| (selectors(layer), &layer[word]));
        let layers = std::iter::once(([Value::Null, Value::Null], &spec[word])).chain(overrides);
        let all = layers.map(|(selectors, layer)| (selectors, layer["metadata"]["annotations"][TAKE_OVER].clone()));
        all.filter(|(_, value)| !value.is_null()).collect()
    };
    let is_changed = values(new) != values(old) || new["placement"] != old["placement"];
    let is_new = !values(new).is_empty() && is_changed;
    is_new.then(|| format!("spec.{word}.metadata.annotations[{TAKE_OVER}]"))
}

/// The question about a resource that a fleet may adopt from now on: the fleet's template replaces
/// all of its fields, so they count as removed.
fn of_adoption(component: Component, write: &Write<'_>) -> Option<Question> {
    let is_adoptable = |object: &Value| object["metadata"]["annotations"][ADOPT] == "true";
    if !is_adoptable(write.new) || is_adoptable(write.before()) {
        return None;
    }
    let removed = changes(component, &write.new["spec"], &Value::Null);
    let permission = Permission::to_customize(component.plural(), write.namespace);
    (!removed.is_empty()).then(|| Question::new(format!("metadata.annotations[{ADOPT}]"), permission))
}

/// The question about the cluster of a resource with this `spec`; `None` if its reference can't be
/// read, which the API server refuses.
fn of_cluster(spec: &Value) -> Option<Question> {
    let reference = Option::<ClusterProfileReference>::deserialize(&spec["clusterProfileRef"]).ok()?;
    Some(Question::new("spec.clusterProfileRef", Permission::to_target(reference.as_ref())))
}

/// The question about the fields `changed`, which need a permission.
fn of_content(component: Component, namespace: &str, changed: &[String]) -> Option<Question> {
    let permission = Permission::to_customize(component.plural(), namespace);
    (!changed.is_empty()).then(|| Question::new(first(changed), permission))
}

/// The first of `paths`, and the number of the others.
fn first(paths: &[String]) -> String {
    let further = paths.len().saturating_sub(MAX_NAMED);
    let named = paths[..paths.len() - further].join(", ");
    if further == 0 { named } else { format!("{named}, and {further} others") }
}

/// The clusters of a fleet: all of each namespace, since clusters that join later are not asked
/// about.
fn of_placement(given: &Value, namespace: &str) -> Vec<Question> {
    let Ok(given) = Placement::deserialize(given) else {
        // It is not known what it selects.
        return vec![Question::new("spec.placement", Permission::to_use("", ""))];
    };
    if let Some(decision) = &given.decision {
        let of = decision.namespace.as_deref().unwrap_or(namespace);
        // A decision can name every ClusterProfile, and its writers choose.
        let permissions = [Permission::to_use("", ""), Permission::to_use_decisions(of)];
        return permissions.map(|permission| Question::new("spec.placement.decision", permission)).into();
    }
    let named = placement::namespaces(&given, namespace);
    let named: BTreeSet<&str> = named.map_or_else(|| [""].into(), |all| all.into_iter().collect());
    named.into_iter().map(|name| Question::new("spec.placement", Permission::to_use(name, ""))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The questions about the change of a spec, as field and action.
    fn asked(kind: Kind, new: &Value, old: &Value) -> Vec<String> {
        let (new, stored) = (json!({"spec": new}), json!({"spec": old}));
        let write = Write { kind, namespace: "tenant", new: &new, old: (!old.is_null()).then_some(&stored) };
        let text = |question: Question| format!("{}: {}", question.field, question.permission.action());
        about(&write).into_iter().map(text).collect()
    }

    #[test]
    fn adoption_removes_what_the_template_lacks() {
        let asked = |annotation: &str, before: &str, spec: Value| {
            let object = |value: &str| json!({"metadata": {"annotations": {ADOPT: value}}, "spec": spec});
            let (new, old) = (object(annotation), object(before));
            let kind = Kind::Component(Component::Serving);
            about(&Write { kind, namespace: "tenant", new: &new, old: Some(&old) }).len()
        };
        let registry = || json!({"registry": {"default": "x"}});
        assert_eq!(asked("true", "", registry()), 1);
        assert_eq!(asked("true", "true", registry()), 0);
        assert_eq!(asked("", "true", registry()), 0);
        assert_eq!(asked("true", "", json!({"version": "1.22.1"})), 0);
    }

    #[test]
    fn take_over_removes_what_the_owner_had() {
        let object = |value: Value| json!({"metadata": {"annotations": {TAKE_OVER: value}}, "spec": {}});
        for (new, old, expected) in [
            (json!("a"), Value::Null, 1),
            (json!("a"), json!("a"), 0),
            (json!("b"), json!("a"), 1),
            (Value::Null, json!("a"), 0),
        ] {
            let kind = Kind::Component(Component::Serving);
            let (new, old) = (object(new), object(old));
            let asked = about(&Write { kind, namespace: "tenant", new: &new, old: Some(&old) });
            assert_eq!(asked.len(), expected, "{old} to {new}");
        }
        let fleet = |patch: &Value| {
            let mut fleet = json!({"placement": {"clusterSelector": {}}, "serving": {"spec": {}}});
            json_patch::merge(&mut fleet, patch);
            fleet
        };
        let layer = json!({"metadata": {"annotations": {TAKE_OVER: "a"}}});
        for patch in [json!({"serving": layer}), json!({"overrides": [{"clusterSelector": {}, "serving": layer}]})] {
            let customize = format!(
                "spec.serving.metadata.annotations[{TAKE_OVER}]: customize knativeservings in namespace \"tenant\""
            );
            assert_eq!(asked(Kind::Fleet, &fleet(&patch), &fleet(&json!({}))), [customize.as_str()]);
            assert!(asked(Kind::Fleet, &fleet(&patch), &fleet(&patch)).is_empty());
            let mut elsewhere = fleet(&patch);
            elsewhere["placement"] = json!({"clusterSelector": {}, "namespaces": ["other"]});
            assert!(asked(Kind::Fleet, &elsewhere, &fleet(&patch)).contains(&customize));
        }
        let of = |selector: Value| fleet(&json!({"overrides": [{"clusterSelector": selector, "serving": layer}]}));
        let canary = of(json!({"matchLabels": {"tier": "canary"}}));
        assert_eq!(asked(Kind::Fleet, &of(json!({})), &canary).len(), 1, "more clusters");
        let in_eu =
            json!({"clusterSelector": {}, "propertySelector": {"matchLabels": {"region": "eu"}}, "serving": layer});
        let in_eu = fleet(&json!({"overrides": [in_eu]}));
        assert_eq!(asked(Kind::Fleet, &of(json!({})), &in_eu).len(), 1, "more regions");
    }

    #[test]
    fn components_are_asked_about_what_they_bring_or_change() {
        let reference = json!({"name": "a", "namespace": "f"});
        let patches = json!([{"target": {"kind": "Deployment", "name": "x"}, "patch": "a: b"}]);
        let customize = "customize knativeservings in namespace \"tenant\"";
        for (new, old, expected) in [
            (json!({"version": "1.22"}), Value::Null, vec![]),
            (
                json!({"clusterProfileRef": reference}),
                Value::Null,
                vec!["spec.clusterProfileRef: use ClusterProfile \"f/a\"".to_owned()],
            ),
            (
                json!({"clusterProfileRef": reference, "version": "1.22"}),
                json!({"clusterProfileRef": reference}),
                vec![],
            ),
            (json!({"patches": patches}), Value::Null, vec![format!("spec.patches: {customize}")]),
            (json!({"patches": patches, "version": "1.22"}), json!({"patches": patches}), vec![]),
            (json!({}), json!({"patches": patches}), vec![format!("spec.patches: {customize}")]),
            (json!({"patches": []}), Value::Null, vec![]),
            (
                json!({"registry": {"default": "x"}, "additionalManifests": [{"URL": "more"}]}),
                Value::Null,
                vec![format!("spec.additionalManifests, spec.registry: {customize}")],
            ),
            (json!({"workloads": [{"name": "w", "replicas": 3}]}), Value::Null, vec![]),
            (
                json!({"workloads": [{"name": "w", "hostNetwork": true}]}),
                Value::Null,
                vec![format!("spec.workloads[w].hostNetwork: {customize}")],
            ),
            (
                json!({"config": {"domain": {"a": "", "b": "", "c": "", "d": "", "e": "", "f": "", "g": ""}}}),
                Value::Null,
                vec![format!(
                    "spec.config.domain.a, spec.config.domain.b, spec.config.domain.c, spec.config.domain.d, spec.config.domain.e, and 2 others: {customize}"
                )],
            ),
            (
                json!({"workloads": [{"name": "v"}, {"name": "w", "hostNetwork": true, "replicas": 3}]}),
                json!({"workloads": [{"name": "w", "hostNetwork": true}]}),
                vec![],
            ),
            (
                json!({"workloads": []}),
                json!({"workloads": [{"name": "w", "hostNetwork": true}]}),
                vec![format!("spec.workloads[w].hostNetwork: {customize}")],
            ),
            (
                json!({"patches": 7, "workloads": {"a": 1}, "registry": "x", "clusterProfileRef": []}),
                Value::Null,
                vec![format!("spec.patches, spec.registry, spec.workloads: {customize}")],
            ),
        ] {
            let is_new_and_local = old.is_null() && new["clusterProfileRef"].is_null();
            let local = is_new_and_local.then(|| "spec.clusterProfileRef: install on this cluster itself".to_owned());
            let expected: Vec<String> = local.into_iter().chain(expected).collect();
            assert_eq!(asked(Kind::Component(Component::Serving), &new, &old), expected, "{old} to {new}");
        }
    }

    #[test]
    fn fleets_are_asked_about_clusters_and_templates() {
        let prod = json!({"matchLabels": {"tier": "prod"}});
        let fleet = |patch: Value| {
            let mut fleet =
                json!({"placement": {"clusterSelector": prod, "namespaces": ["f"]}, "serving": {"spec": {}}});
            json_patch::merge(&mut fleet, &patch);
            fleet
        };
        let of_f = "spec.placement: use all ClusterProfiles in namespace \"f\"";
        let customize = "customize knativeservings in namespace \"tenant\"";
        let patches = json!([{"target": {}, "patch": "x"}]);
        let of_decision = |namespace: &str| {
            vec![
                "spec.placement.decision: use all ClusterProfiles in all namespaces".to_owned(),
                format!("spec.placement.decision: use PlacementDecisions in namespace \"{namespace}\""),
            ]
        };
        for (new, old, expected) in [
            (fleet(json!({})), Value::Null, vec![of_f.to_owned()]),
            (fleet(json!({"serving": {"spec": {"version": "1.22"}}})), fleet(json!({})), vec![]),
            (
                fleet(json!({"placement": {"namespaces": ["g", "f", "f"]}})),
                Value::Null,
                vec![of_f.to_owned(), "spec.placement: use all ClusterProfiles in namespace \"g\"".to_owned()],
            ),
            (
                fleet(json!({"placement": {"namespaces": null}})),
                Value::Null,
                vec!["spec.placement: use all ClusterProfiles in namespace \"tenant\"".to_owned()],
            ),
            (
                fleet(
                    json!({"placement": {"namespaces": ["*"], "clusterSelector": {"matchLabels": {"tier": "test"}}}}),
                ),
                Value::Null,
                vec!["spec.placement: use all ClusterProfiles in all namespaces".to_owned()],
            ),
            (
                fleet(json!({"placement": {"clusterSelector": null, "namespaces": null, "decision": {"key": "d"}}})),
                Value::Null,
                of_decision("tenant"),
            ),
            (
                fleet(
                    json!({"placement": {"clusterSelector": null, "namespaces": null, "decision": {"key": "d", "namespace": "h"}}}),
                ),
                Value::Null,
                of_decision("h"),
            ),
            (
                fleet(json!({"serving": {"spec": {"patches": patches}}})),
                fleet(json!({})),
                vec![format!("spec.serving.spec.patches: {customize}")],
            ),
            (fleet(json!({"eventing": {"spec": {}}})), fleet(json!({})), vec![of_f.to_owned()]),
            (fleet(json!({"serving": null, "eventing": {"spec": {}}})), fleet(json!({})), vec![of_f.to_owned()]),
            (
                fleet(
                    json!({"overrides": [{"clusterSelector": {}}, {"clusterSelector": {}, "serving": {"spec": {"registry": {"default": "x"}}}}]}),
                ),
                fleet(json!({})),
                vec![format!("spec.overrides[1].serving.spec.registry: {customize}")],
            ),
            (
                fleet(json!({"overrides": [{"clusterSelector": {}, "serving": {"spec": {"version": "1.22"}}}]})),
                fleet(json!({})),
                vec![],
            ),
            (
                fleet(
                    json!({"overrides": [{"clusterSelector": {}}, {"clusterSelector": {}, "serving": {"spec": {"patches": patches}}}]}),
                ),
                fleet(json!({"overrides": [{"clusterSelector": {}, "serving": {"spec": {"patches": patches}}}]})),
                vec![],
            ),
            (
                fleet(json!({"overrides": [{"clusterSelector": prod, "serving": {"spec": {"patches": patches}}}]})),
                fleet(json!({"overrides": [{"clusterSelector": {}, "serving": {"spec": {"patches": patches}}}]})),
                vec![format!("spec.overrides: {customize}")],
            ),
            (
                fleet(json!({"overrides": [{"clusterSelector": {}, "serving": {"spec": {"patches": null}}}]})),
                fleet(json!({"overrides": [{"clusterSelector": {}, "serving": {"spec": {"patches": patches}}}]})),
                vec![format!("spec.overrides[0].serving.spec.patches: {customize}")],
            ),
        ] {
            assert_eq!(asked(Kind::Fleet, &new, &old), expected, "{old} to {new}");
        }
    }
}
