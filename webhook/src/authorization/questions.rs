//! The questions about a request: which clusters it targets, and what content it brings. An update
//! is asked about only for what it changes, so that a user can still change other fields of what
//! an administrator stored. Pure, given the facts about the cluster.

use std::collections::{BTreeMap, BTreeSet};

use knative_operator_shared::api::fleet::Placement;
use knative_operator_shared::api::{ClusterProfileReference, Component};
use knative_operator_shared::fleet::placement;
use serde::Deserialize;
use serde_json::Value;

use super::permission::Permission;
use crate::admission::component;
use crate::cluster_facts::ClusterFacts;
use crate::fleet;
use crate::review::Request;

/// Asks for a permission because of a field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Path of the field.
    pub field: String,
    /// The permission.
    pub permission: Permission,
    /// Permissions that suffice together, if there are any.
    pub or_all_of: Vec<Permission>,
}

impl Question {
    fn new(field: impl Into<String>, permission: Permission) -> Self {
        Self { field: field.into(), permission, or_all_of: Vec::new() }
    }
}

/// The questions about `request`.
pub fn about(request: &Request, facts: &ClusterFacts) -> Vec<Question> {
    if !matches!(request.operation.as_str(), "CREATE" | "UPDATE") {
        return Vec::new();
    }
    let (new, old) = (&request.object["spec"], &request.old_object["spec"]);
    if let Some(component) = component(request) {
        let reference = (new["clusterProfileRef"] != old["clusterProfileRef"]).then(|| of_reference(new)).flatten();
        let content = of_content("spec", component, &request.namespace, new, old);
        return reference.into_iter().chain(content).collect();
    }
    if !fleet::is_fleet(request) {
        return Vec::new();
    }
    let mut questions = Vec::new();
    if new["placement"] != old["placement"] {
        questions.extend(of_placement(&new["placement"], &request.namespace, facts));
    }
    for component in Component::ALL {
        questions.extend(of_template(component, &request.namespace, new, old));
    }
    questions
}

fn of_reference(spec: &Value) -> Option<Question> {
    let reference = ClusterProfileReference::deserialize(&spec["clusterProfileRef"]).ok()?;
    Some(Question::new("spec.clusterProfileRef", Permission::to_use(&reference.namespace, &reference.name)))
}

/// Content that `new` brings or changes, as paths below a spec.
fn changed_content(new: &Value, old: &Value) -> Vec<&'static str> {
    const WHOLE: [&str; 3] = ["additionalManifests", "patches", "registry"];
    let mut changed: Vec<&str> =
        WHOLE.into_iter().filter(|field| content(&new[field]) != content(&old[field])).collect();
    if downloads(new) != downloads(old) {
        changed.push("manifests");
    }
    for field in ["workloads", "deployments"] {
        if !privileged(&new[field]).is_subset(&privileged(&old[field])) {
            changed.push(field);
        }
    }
    changed
}

/// `value`, unless it is empty.
fn content(value: &Value) -> Option<&Value> {
    let is_empty = match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
        _ => false,
    };
    (!is_empty).then_some(value)
}

/// Manifests that are not in the release bundle.
fn downloads(spec: &Value) -> Vec<&str> {
    let urls = spec["manifests"].as_array().into_iter().flatten().filter_map(|source| source["URL"].as_str());
    urls.filter(|url| url.contains("://")).collect()
}

/// The overrides of workloads that give Pods access to their node: names and fields.
fn privileged(workloads: &Value) -> BTreeSet<(&str, String)> {
    let of_workload = |workload: &'_ Value| -> Option<String> {
        let (network, volumes) = (&workload["hostNetwork"], content(&workload["volumeMounts"]));
        let is_privileged = content(network).is_some_and(|network| *network != false) || volumes.is_some();
        is_privileged.then(|| format!("{network} {}", volumes.unwrap_or(&Value::Null)))
    };
    let all = workloads.as_array().into_iter().flatten();
    all.filter_map(|workload| Some((workload["name"].as_str().unwrap_or_default(), of_workload(workload)?))).collect()
}

/// The question about the content that `new` brings or changes.
fn of_content(path: &str, component: Component, namespace: &str, new: &Value, old: &Value) -> Option<Question> {
    let fields = changed_content(new, old);
    let paths: Vec<String> = fields.iter().map(|field| format!("{path}.{field}")).collect();
    let permission = Permission::to_customize(component.plural(), namespace);
    (!paths.is_empty()).then(|| Question::new(paths.join(", "), permission))
}

/// The clusters of a fleet: all of its namespaces, or each cluster that is selected now.
fn of_placement(given: &Value, namespace: &str, facts: &ClusterFacts) -> Vec<Question> {
    let Ok(given) = Placement::deserialize(given) else { return Vec::new() };
    if given.decision.is_some() {
        // A decision can name every ClusterProfile.
        return vec![Question::new("spec.placement.decision", Permission::to_use("", ""))];
    }
    let profiles = facts.profiles().unwrap_or_default();
    let profiles = profiles.iter().map(|(reference, labels)| (reference, Some(labels)));
    let selected = placement::selected(&given, namespace, profiles).unwrap_or_default();
    let mut by_namespace: BTreeMap<&str, Vec<Permission>> = BTreeMap::new();
    for cluster in &selected {
        let permission = Permission::to_use(&cluster.namespace, &cluster.name);
        by_namespace.entry(&cluster.namespace).or_default().push(permission);
    }
    let question = |namespace: &str, or_all_of: Vec<Permission>| Question {
        or_all_of,
        ..Question::new("spec.placement", Permission::to_use(namespace, ""))
    };
    match placement::namespaces(&given, namespace) {
        None => vec![question("", by_namespace.into_values().flatten().collect())],
        Some(all) => {
            let named: BTreeSet<&str> = all.into_iter().collect();
            named.into_iter().map(|name| question(name, by_namespace.remove(name).unwrap_or_default())).collect()
        }
    }
}

/// Content of the template of `component` and its overrides.
fn of_template(component: Component, namespace: &str, new: &Value, old: &Value) -> Option<Question> {
    let word = component.word();
    let content =
        of_content(&format!("spec.{word}.spec"), component, namespace, &new[word]["spec"], &old[word]["spec"]);
    content.or_else(|| {
        let overrides = |spec: &'_ Value| spec["overrides"].as_array().cloned().unwrap_or_default();
        let before = overrides(old);
        let is_new = |change: &Value| {
            !changed_content(&change[word]["spec"], &Value::Null).is_empty() && !before.contains(change)
        };
        let index = overrides(new).iter().position(is_new)?;
        let permission = Permission::to_customize(component.plural(), namespace);
        Some(Question::new(format!("spec.overrides[{index}].{word}.spec"), permission))
    })
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use knative_operator_shared::label::{FLEET_VERSION, GROUP, VERSION};
    use serde_json::json;

    use super::*;
    use crate::cluster_facts::ProfileFacts;
    use crate::review::Kind;

    fn request(kind: &str, new: Value, old: Value) -> Request {
        let version = if kind == "KnativeFleet" { FLEET_VERSION } else { VERSION };
        let spec = |spec: Value| if spec.is_null() { Value::Null } else { json!({"spec": spec}) };
        Request {
            kind: Kind { group: GROUP.into(), version: version.into(), kind: kind.into() },
            operation: if old.is_null() { "CREATE" } else { "UPDATE" }.into(),
            namespace: "tenant".into(),
            object: spec(new),
            old_object: spec(old),
            ..Request::default()
        }
    }

    /// The questions, as field and action.
    fn asked(request: &Request) -> Vec<String> {
        let facts = ClusterFacts::default();
        let profiles = [("f", "a", "prod"), ("f", "b", "prod"), ("f", "c", "test"), ("g", "d", "prod")];
        facts.set_profiles(HashMap::from(profiles.map(|(namespace, name, tier)| {
            let reference = ClusterProfileReference { name: name.into(), namespace: namespace.into() };
            (reference, ProfileFacts { labels: [("tier".into(), tier.into())].into(), ..ProfileFacts::default() })
        })));
        let text = |question: Question| {
            let instead: Vec<String> = question.or_all_of.iter().map(Permission::action).collect();
            let instead = if instead.is_empty() { String::new() } else { format!(", or {}", instead.join(" and ")) };
            format!("{}: {}{instead}", question.field, question.permission.action())
        };
        about(request, &facts).into_iter().map(text).collect()
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
            (json!({"registry": {}}), Value::Null, vec![]),
            (
                json!({"registry": {"default": "x"}, "additionalManifests": [{"URL": "more"}]}),
                Value::Null,
                vec![format!("spec.additionalManifests, spec.registry: {customize}")],
            ),
            (json!({"manifests": [{"URL": "knative-serving/1.22.0"}]}), Value::Null, vec![]),
            (json!({"manifests": [{"URL": "https://x/y"}]}), Value::Null, vec![format!("spec.manifests: {customize}")]),
            (json!({"workloads": [{"name": "w", "replicas": 3, "hostNetwork": false}]}), Value::Null, vec![]),
            (
                json!({"workloads": [{"name": "w", "hostNetwork": true}]}),
                Value::Null,
                vec![format!("spec.workloads: {customize}")],
            ),
            (
                json!({"deployments": [{"name": "w", "volumeMounts": [{}]}]}),
                Value::Null,
                vec![format!("spec.deployments: {customize}")],
            ),
            (
                json!({"workloads": [{"name": "v"}, {"name": "w", "hostNetwork": true, "replicas": 3}]}),
                json!({"workloads": [{"name": "w", "hostNetwork": true}]}),
                vec![],
            ),
            (json!({"workloads": []}), json!({"workloads": [{"name": "w", "hostNetwork": true}]}), vec![]),
            (
                json!({"patches": 7, "workloads": {"a": 1}, "registry": "x", "clusterProfileRef": []}),
                Value::Null,
                vec![format!("spec.patches, spec.registry: {customize}")],
            ),
        ] {
            assert_eq!(asked(&request("KnativeServing", new.clone(), old.clone())), expected, "{old} to {new}");
        }
        let mut other = request("KnativeServing", json!({"clusterProfileRef": reference}), Value::Null);
        other.operation = "DELETE".into();
        assert!(asked(&other).is_empty());
        other.operation = "CREATE".into();
        other.sub_resource = "status".into();
        assert!(asked(&other).is_empty());
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
        let of_f = "spec.placement: use all ClusterProfiles in namespace \"f\", or use ClusterProfile \"f/a\" and use ClusterProfile \"f/b\"";
        let customize = "customize knativeservings in namespace \"tenant\"";
        let patches = json!([{"target": {}, "patch": "x"}]);
        for (new, old, expected) in [
            (fleet(json!({})), Value::Null, vec![of_f.to_owned()]),
            (fleet(json!({"serving": {"spec": {"version": "1.22"}}})), fleet(json!({})), vec![]),
            (
                fleet(json!({"placement": {"namespaces": ["g", "f", "f"]}})),
                Value::Null,
                vec![
                    of_f.to_owned(),
                    "spec.placement: use all ClusterProfiles in namespace \"g\", or use ClusterProfile \"g/d\""
                        .to_owned(),
                ],
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
                vec![
                    "spec.placement: use all ClusterProfiles in all namespaces, or use ClusterProfile \"f/c\""
                        .to_owned(),
                ],
            ),
            (
                fleet(json!({"placement": {"clusterSelector": null, "namespaces": null, "decision": {"key": "d"}}})),
                Value::Null,
                vec!["spec.placement.decision: use all ClusterProfiles in all namespaces".to_owned()],
            ),
            (
                fleet(json!({"serving": {"spec": {"patches": patches}}})),
                fleet(json!({})),
                vec![format!("spec.serving.spec.patches: {customize}")],
            ),
            (
                fleet(
                    json!({"overrides": [{"clusterSelector": {}}, {"clusterSelector": {}, "serving": {"spec": {"registry": {"default": "x"}}}}]}),
                ),
                fleet(json!({})),
                vec![format!("spec.overrides[1].serving.spec: {customize}")],
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
                vec![format!("spec.overrides[0].serving.spec: {customize}")],
            ),
        ] {
            assert_eq!(asked(&request("KnativeFleet", new.clone(), old.clone())), expected, "{old} to {new}");
        }
    }
}
