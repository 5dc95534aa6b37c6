//! Templates of fleets: they follow the rules for single resources, with the overrides of each
//! cluster, too.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};

use super::context::{FleetContext, RuleContext};
use super::parse;
use super::rule::{Example, Rule, Severity, Violation};
use super::validate::{remove_existing, validate};
use knative_operator_shared::api::fleet::{FleetOverride, Template};
use knative_operator_shared::api::{ClusterProfileReference, Component, KnativeFleet};
use knative_operator_shared::fleet::selector::{ClusterSelector, Traits};
use knative_operator_shared::label::{GROUP, VERSION};

/// Templates, and overrides of them.
pub static TEMPLATE: Rule = Rule {
    id: "fleet-template",
    severity: Severity::Error,
    requirement: "A KnativeFleet has `spec.serving`, `spec.eventing`, or both. They follow the rules for KnativeServing and KnativeEventing, with each override, too, and have no `clusterProfileRef`.",
    valid: Example::fleet(
        r#"{"placement": {"clusterSelector": {}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.22"}}, "overrides": [{"clusterSelector": {}, "serving": {"spec": {"config": {"network": {"domain-template": "x"}}}}}]}"#,
    ),
    invalid: Example::fleet(
        r#"{"placement": {"clusterSelector": {}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"clusterProfileRef": {"name": "a", "namespace": "b"}}}}"#,
    ),
};

/// Maximum number of templates with overrides that are validated, so that a review takes less than
/// a second. The operator reports the others on their clusters.
const MAX_TEMPLATES: usize = 10_000;

/// Overrides, by index, of a cluster; no cluster if only the override is known.
type Combinations<'a> = BTreeMap<Vec<usize>, Option<&'a ClusterProfileReference>>;

pub fn check(fleet: &KnativeFleet, context: &FleetContext<'_>, violations: &mut Vec<Violation>) {
    let spec = &fleet.spec;
    if spec.components().next().is_none() {
        violations.push(TEMPLATE.at("spec", "neither serving nor eventing is set", "set at least one"));
    }
    let namespace = fleet.metadata.namespace.as_deref().unwrap_or_default();
    let clusters = context.selected(&spec.placement, namespace);
    for component in Component::ALL {
        let before = violations.len();
        let is_overridden = |index: usize| !spec.overrides[index].patch(component).is_empty();
        for index in (0..spec.overrides.len()).filter(|index| is_overridden(*index)) {
            let field = format!("spec.overrides[{index}].{}", component.word());
            check_shape(&field, component, &spec.overrides[index], violations);
        }
        let Some(template) = spec.template(component) else { continue };
        let field = format!("spec.{}", component.word());
        if template.spec.contains_key("clusterProfileRef") {
            violations.push(has_cluster(&field));
        }
        if violations.len() > before {
            continue;
        }
        let value = json!(template);
        let own = of_template(component, namespace, &value, context);
        violations.extend(own.iter().cloned().map(|violation| within(&field, violation, None)));
        let mut known: HashSet<_> = violations.iter().map(|known| (known.rule.id, known.field.clone())).collect();
        let mut templates = 0;
        for (indices, cluster) in combinations(&spec.overrides, clusters.as_deref(), is_overridden) {
            let (mut value, mut before) = (value.clone(), own.clone());
            templates += indices.len();
            if templates > MAX_TEMPLATES {
                break;
            }
            for index in indices {
                json_patch::merge(&mut value, &Value::Object(spec.overrides[index].patch(component).clone()));
                let after = of_template(component, namespace, &value, context);
                let mut new = after.clone();
                remove_existing(&mut new, &before);
                new.retain(Violation::is_error);
                let field = format!("spec.overrides[{index}].{}", component.word());
                for violation in new.into_iter().map(|violation| within(&field, violation, cluster)) {
                    // One cluster is enough.
                    if known.insert((violation.rule.id, violation.field.clone())) {
                        violations.push(violation);
                    }
                }
                before = after;
            }
        }
    }
}

fn has_cluster(field: &str) -> Violation {
    let field = format!("{field}.spec.clusterProfileRef");
    TEMPLATE.at(field, "a template has no cluster", "remove it; spec.placement selects the clusters")
}

/// Checks an override by itself.
fn check_shape(field: &str, component: Component, change: &FleetOverride, violations: &mut Vec<Violation>) {
    let patch = change.patch(component);
    if patch.get("spec").and_then(|spec| spec.get("clusterProfileRef")).is_some() {
        violations.push(has_cluster(field));
    }
    for (key, value) in patch {
        let field = format!("{field}.{key}");
        if !["metadata", "spec"].contains(&key.as_str()) {
            violations.push(TEMPLATE.at(field, "unknown field", "an override has the fields metadata and spec"));
        } else if !value.is_object() && !value.is_null() {
            violations.push(TEMPLATE.at(field, format!("{value} is not an object"), "set it to one"));
        }
    }
}

/// The combinations of overrides that clusters have, and each override by itself.
fn combinations<'a>(
    overrides: &[FleetOverride],
    clusters: Option<&'a [(ClusterProfileReference, &Traits<'static>)]>,
    is_overridden: impl Fn(usize) -> bool,
) -> Combinations<'a> {
    let selectors: Vec<Option<ClusterSelector>> =
        overrides.iter().map(|change| ClusterSelector::of_override(change).ok()).collect();
    let mut combinations = Combinations::new();
    for (cluster, traits) in clusters.unwrap_or_default() {
        let selects = |index: &usize| selectors[*index].as_ref().is_some_and(|selector| selector.matches(traits));
        let indices: Vec<usize> = (0..overrides.len()).filter(|index| is_overridden(*index)).filter(selects).collect();
        combinations.entry(indices).or_insert(Some(cluster));
    }
    let of_clusters: Vec<Vec<usize>> = combinations.keys().cloned().collect();
    for index in (0..overrides.len()).filter(|index| is_overridden(*index)) {
        if of_clusters.iter().all(|indices| !indices.contains(&index)) {
            combinations.insert(vec![index], None);
        }
    }
    combinations
}

/// Violations of `template` as a resource.
fn of_template(component: Component, namespace: &str, template: &Value, context: &FleetContext<'_>) -> Vec<Violation> {
    if let Err(error) = serde_json::from_value::<Template>(template.clone()) {
        return vec![TEMPLATE.at("", error.to_string(), "see `kubectl explain knativefleet.spec`")];
    }
    let mut object = json!({"apiVersion": format!("{GROUP}/{VERSION}"), "kind": component.kind(),
        "metadata": template["metadata"], "spec": template["spec"]});
    (object["metadata"]["name"], object["metadata"]["namespace"]) = (json!("template"), json!(namespace));
    object["spec"]["clusterProfileRef"] = json!({"name": "template", "namespace": "template"});
    match parse::parse(component, &object) {
        Ok(resource) => validate(&resource, &RuleContext { catalog: context.catalog, ..RuleContext::default() }),
        Err(violation) => vec![violation],
    }
}

/// `violation` of a template, with its field in the fleet.
fn within(field: &str, violation: Violation, cluster: Option<&ClusterProfileReference>) -> Violation {
    let message = match cluster {
        Some(cluster) => format!("{} (cluster {cluster})", violation.message),
        None => violation.message,
    };
    let separator = if violation.field.is_empty() { "" } else { "." };
    Violation { field: format!("{field}{separator}{}", violation.field), message, ..violation }
}
