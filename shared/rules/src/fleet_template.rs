//! Templates of fleets: they follow the rules for single resources, with the overrides of each
//! cluster, too.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::{Map, Value, json};

use super::context::{FleetContext, RuleContext};
use super::parse;
use super::rule::{Example, Rule, Severity, Violation};
use super::validate::validate;
use super::violations::{MAX_VIOLATIONS, remove_existing};
use knative_operator_shared::api::fleet::{FleetOverride, Selecting, Template};
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
/// Maximum size of these templates together, in bytes, for the same reason: the author of a fleet
/// decides on the size of each.
const MAX_SIZE: usize = 32 << 20;
/// Size of a value besides its text, in bytes.
const VALUE_SIZE: usize = 16;
/// Maximum number of comparisons of a cluster with a requirement of the selector of an override.
const MAX_COMPARISONS: usize = 10_000_000;

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
        let mut own = of_template(component, namespace, &value, context);
        violations.extend(own.iter().cloned().map(|violation| within(&field, violation, None)));
        own.retain(Violation::is_error);
        let mut known: HashSet<_> = violations.iter().map(|known| (known.rule.id, known.field.clone())).collect();
        let sizes: Vec<usize> = spec.overrides.iter().map(|change| size_of_fields(change.patch(component))).collect();
        let (mut templates, mut read, mut errors, least) = (0, 0_usize, 0, size(&value));
        for (indices, cluster) in combinations(&spec.overrides, clusters.as_deref(), is_overridden) {
            let largest = least + indices.iter().map(|index| sizes[*index]).sum::<usize>();
            templates += indices.len();
            read = read.saturating_add(indices.len().saturating_mul(largest));
            if templates > MAX_TEMPLATES || read > MAX_SIZE || errors >= MAX_VIOLATIONS {
                break;
            }
            let (mut value, mut before) = (value.clone(), own.clone());
            for index in indices {
                if errors >= MAX_VIOLATIONS {
                    break;
                }
                json_patch::merge(&mut value, &Value::Object(spec.overrides[index].patch(component).clone()));
                let mut after = of_template(component, namespace, &value, context);
                after.retain(Violation::is_error);
                let mut new = after.clone();
                remove_existing(&mut new, &before);
                let field = format!("spec.overrides[{index}].{}", component.word());
                for violation in new.into_iter().map(|violation| within(&field, violation, cluster)) {
                    // One cluster is enough.
                    if known.insert((violation.rule.id, violation.field.clone())) {
                        errors += 1;
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
    let most = (MAX_COMPARISONS / overrides.iter().map(requirements).sum::<usize>().max(1)).max(1);
    let (clusters, mut combinations, mut number) = (clusters.unwrap_or_default(), Combinations::new(), 0);
    let mut is_selected = vec![false; overrides.len()];
    for (position, (cluster, traits)) in clusters.iter().enumerate() {
        if number > MAX_TEMPLATES || position == most {
            // The other clusters may have each override with others, without which it is invalid.
            return combinations;
        }
        let selects = |index: &usize| selectors[*index].as_ref().is_some_and(|selector| selector.matches(traits));
        let indices: Vec<usize> = (0..overrides.len()).filter(|index| is_overridden(*index)).filter(selects).collect();
        indices.iter().for_each(|index| is_selected[*index] = true);
        if let Entry::Vacant(entry) = combinations.entry(indices) {
            number += entry.key().len();
            entry.insert(Some(cluster));
        }
    }
    for index in (0..overrides.len()).filter(|index| is_overridden(*index) && !is_selected[*index]) {
        combinations.insert(vec![index], None);
    }
    combinations
}

/// Number of the requirements that the selectors of `change` have; at least one.
fn requirements(change: &FleetOverride) -> usize {
    let of = |selector: &LabelSelector| {
        let (labels, expressions) = (selector.match_labels.as_ref(), selector.match_expressions.as_ref());
        labels.map_or(0, BTreeMap::len) + expressions.map_or(0, Vec::len)
    };
    change.selectors().into_iter().flatten().map(of).sum::<usize>().max(1)
}

/// Approximate size of `value`, in bytes.
fn size(value: &Value) -> usize {
    let inner = match value {
        Value::String(text) => text.len(),
        Value::Array(items) => items.iter().map(size).sum(),
        Value::Object(fields) => size_of_fields(fields),
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
    };
    VALUE_SIZE + inner
}

fn size_of_fields(fields: &Map<String, Value>) -> usize {
    fields.iter().map(|(name, value)| name.len() + size(value)).sum()
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

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use super::*;

    /// The errors in a fleet with this value in the template, and many overrides, the last one
    /// of which is invalid.
    fn of_many_overrides(value: &str) -> Vec<Violation> {
        let version = |index: usize| if index == 1999 { "x" } else { "1.22" };
        let overrides: Vec<Value> = (0..2000)
            .map(|index| {
                json!({"clusterSelector": {"matchLabels": {"n": index.to_string()}},
                    "serving": {"spec": {"version": version(index)}}})
            })
            .collect();
        let fleet = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": "f", "namespace": "n"},
            "spec": {"placement": {"clusterSelector": {}}, "serving": {"spec": {"config": {"network": {"domain-template": value}}}},
                "overrides": overrides}});
        let mut violations = Vec::new();
        check(&serde_json::from_value(fleet).unwrap(), &FleetContext::default(), &mut violations);
        violations.retain(Violation::is_error);
        violations
    }

    #[test]
    fn large_templates_are_validated_less_often() {
        assert_eq!(of_many_overrides("x").len(), 1);
        // Together, they have 120 MiB.
        assert!(of_many_overrides(&"x".repeat(60 << 10)).is_empty());
    }

    #[test]
    fn combinations_are_bounded() {
        let overrides: Vec<FleetOverride> = (0..400)
            .map(|index| {
                let others =
                    json!({"matchExpressions": [{"key": "n", "operator": "NotIn", "values": [index.to_string()]}]});
                serde_json::from_value(json!({"clusterSelector": others, "serving": {"spec": {}}})).unwrap()
            })
            .collect();
        let traits: Vec<Traits<'static>> = (0..400)
            .map(|index| Traits {
                labels: Cow::Owned([("n".to_owned(), index.to_string())].into()),
                properties: Cow::Owned(BTreeMap::new()),
                are_unreadable: false,
            })
            .collect();
        let cluster = |index: usize| ClusterProfileReference { name: index.to_string(), namespace: "n".to_owned() };
        let clusters: Vec<_> = traits.iter().enumerate().map(|(index, traits)| (cluster(index), traits)).collect();
        let all = combinations(&overrides, Some(&clusters[..]), |_| true);
        let number: usize = all.keys().map(Vec::len).sum();
        assert!((MAX_TEMPLATES..MAX_TEMPLATES + 1000).contains(&number), "{number}");
        assert_eq!(combinations(&overrides, Some(&clusters[..1]), |_| true).len(), 2, "and the one that it lacks");
        // The only cluster of an override is the last one.
        let mut overrides = overrides;
        overrides[0].cluster_selector = serde_json::from_value(json!({"matchLabels": {"n": "399"}})).unwrap();
        let all = combinations(&overrides, Some(&clusters[..]), |_| true);
        assert!(!all.contains_key(&[0][..]) && all.values().all(Option::is_some), "it may have others there");
    }

    #[test]
    fn selectors_with_many_requirements_are_compared_with_few_clusters() {
        let of = |requirements: usize| -> FleetOverride {
            let own = [json!({"key": "n", "operator": "In", "values": ["last"]})];
            let others = (0..requirements).map(|index| json!({"key": format!("x{index}"), "operator": "DoesNotExist"}));
            let all: Vec<Value> = own.into_iter().chain(others).collect();
            serde_json::from_value(json!({"clusterSelector": {"matchExpressions": all}, "serving": {"spec": {}}}))
                .unwrap()
        };
        let labeled = |value: &str| Traits {
            labels: Cow::Owned([("n".to_owned(), value.to_owned())].into()),
            ..Traits::default()
        };
        let (first, last) = (labeled("first"), labeled("last"));
        let cluster = |index: usize| ClusterProfileReference { name: index.to_string(), namespace: "n".to_owned() };
        let clusters: Vec<_> =
            (0..2000).map(|index| (cluster(index), if index == 1999 { &last } else { &first })).collect();
        for (requirements, is_compared) in [(1, true), (10_000, false)] {
            let all = combinations(&[of(requirements)], Some(&clusters[..]), |_| true);
            assert_eq!(all.get(&[0][..]).is_some_and(Option::is_some), is_compared, "{requirements}");
        }
    }

    #[test]
    fn errors_of_overrides_are_bounded() {
        let keys: BTreeMap<String, &str> = (0..500).map(|number| (format!("/{number}"), "")).collect();
        let overrides: Vec<Value> = (0..20)
            .map(|index| {
                json!({"clusterSelector": {"matchLabels": {"n": index.to_string()}},
                    "serving": {"spec": {"config": {"network": keys}}}})
            })
            .collect();
        let fleet = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": "f", "namespace": "n"},
            "spec": {"placement": {"clusterSelector": {}}, "serving": {"spec": {}}, "overrides": overrides}});
        let mut violations = Vec::new();
        check(&serde_json::from_value(fleet).unwrap(), &FleetContext::default(), &mut violations);
        let errors = violations.iter().filter(|violation| violation.is_error()).count();
        assert_eq!(errors, MAX_VIOLATIONS);
    }
}
