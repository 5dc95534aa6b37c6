//! What differs between two specs of a fleet and needs the permission, for all clusters that there
//! are or will be.
//!
//! On a cluster, the last layer that sets or removes a field decides about it: an override that
//! selects the cluster, or the template. So a difference shows on a cluster that only two selectors
//! select: that of the layer which decides before the change, and that of the layer which decides
//! after it. At least one of the two layers is not the same before and after. It is therefore
//! enough to compare the specs for each pair of selectors, one of which is that of a changed
//! override.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::compare::changes;
use knative_operator_shared::api::Component;

/// Path of the overrides.
const OVERRIDES: &str = "spec.overrides";
/// Maximum number of pairs of overrides to compare.
const MAX_PAIRS: usize = 100_000;
/// Maximum number of values in the specs to compare. With more pairs or values, which would take
/// longer than a fraction of a second, each change of the overrides needs the permission.
const MAX_VALUES: usize = 4_000_000;
/// Length of a text that takes as long to copy as a value, in bytes.
const TEXT: usize = 64;

/// The paths of the fields of `component` that differ between the fleets with the specs `old` and
/// `new`, and need the permission. A null spec is that of no fleet.
pub fn fleet_changes(component: Component, old: &Value, new: &Value) -> Vec<String> {
    let word = component.word();
    let of_template = changes(component, &old[word]["spec"], &new[word]["spec"]);
    if !of_template.is_empty() {
        return within(&format!("spec.{word}"), &of_template);
    }
    let mut selectors = BTreeMap::new();
    let (old, new) = (Layers::of(word, old, &mut selectors), Layers::of(word, new, &mut selectors));
    let (removed, added) = differing(&old.overrides, &new.overrides);
    if removed.len() * new.overrides.len() + added.len() * old.overrides.len() > MAX_PAIRS {
        return vec![OVERRIDES.to_owned()];
    }
    let changed = pairs(removed, &new.overrides).chain(pairs(added, &old.overrides));
    // With a ConfigMap under its other name, a template can make an override ineffective.
    let all: &[Override<'_>] = if old.template == new.template { &[] } else { &new.overrides };
    let mut values = 0;
    for pair in changed.chain(pairs(all, &[])).collect::<BTreeSet<_>>() {
        values += old.size(pair) + new.size(pair);
        if values > MAX_VALUES {
            return vec![OVERRIDES.to_owned()];
        }
        let found = changes(component, &old.spec(pair), &new.spec(pair));
        if !found.is_empty() {
            let shown = added.iter().rfind(|change| pair.contains(change.selector));
            return shown.map_or_else(
                || vec![OVERRIDES.to_owned()],
                |change| within(&format!("{OVERRIDES}[{}].{word}", change.index), &found),
            );
        }
    }
    Vec::new()
}

/// `paths` in the template or override at `path`.
fn within(path: &str, paths: &[String]) -> Vec<String> {
    paths.iter().map(|own| format!("{path}.{own}")).collect()
}

/// One or two selectors, by number. Those with one come first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pair {
    are_two: bool,
    selectors: [usize; 2],
}

impl Pair {
    fn new(a: usize, b: usize) -> Self {
        Self { are_two: a != b, selectors: [a.min(b), a.max(b)] }
    }

    fn contains(self, selector: usize) -> bool {
        self.selectors.contains(&selector)
    }
}

/// The selectors of `changed`, alone and with each of `others`.
fn pairs(changed: &[Override<'_>], others: &[Override<'_>]) -> impl Iterator<Item = Pair> {
    let alone = changed.iter().map(|one| Pair::new(one.selector, one.selector));
    let with_others =
        changed.iter().flat_map(move |one| others.iter().map(move |other| Pair::new(one.selector, other.selector)));
    alone.chain(with_others)
}

/// The overrides that only one of the two lists has, or has in another order.
fn differing<'o, 'v>(old: &'o [Override<'v>], new: &'o [Override<'v>]) -> (&'o [Override<'v>], &'o [Override<'v>]) {
    let start = old.iter().zip(new).take_while(|(old, new)| old.is_same(new)).count();
    let (old, new) = (&old[start..], &new[start..]);
    let end = old.iter().rev().zip(new.iter().rev()).take_while(|(old, new)| old.is_same(new)).count();
    (&old[..old.len() - end], &new[..new.len() - end])
}

/// An override of the spec of a component.
struct Override<'v> {
    /// Its index in the fleet.
    index: usize,
    /// Number of its selectors by labels and properties.
    selector: usize,
    /// A JSON merge patch (RFC 7386).
    patch: &'v Value,
    /// Number of values in the patch.
    size: usize,
}

impl Override<'_> {
    fn is_same(&self, other: &Self) -> bool {
        self.selector == other.selector && self.patch == other.patch
    }
}

/// The spec of a component in a fleet: the template and its overrides. Without a template, the
/// component is not installed.
struct Layers<'v> {
    template: Option<&'v Value>,
    /// Number of values in the template.
    size: usize,
    overrides: Vec<Override<'v>>,
}

impl<'v> Layers<'v> {
    /// The layers of the component `word` in a fleet with `spec`; `selectors` has the number of
    /// each selector.
    fn of(word: &str, spec: &'v Value, selectors: &mut BTreeMap<String, usize>) -> Self {
        let template = spec[word].is_object().then(|| &spec[word]["spec"]);
        let given = template.and_then(|_| spec["overrides"].as_array());
        let mut overrides = Vec::new();
        for (index, change) in given.into_iter().flatten().enumerate() {
            let Some(patch) = change[word].get("spec") else { continue };
            let number = selectors.len();
            let both = format!("{} {}", change["clusterSelector"], change["propertySelector"]);
            let selector = *selectors.entry(both).or_insert(number);
            overrides.push(Override { index, selector, patch, size: size(patch) });
        }
        Self { template, size: template.map_or(0, size), overrides }
    }

    /// The overrides for a cluster that only the selectors in `pair` select.
    fn overrides(&self, pair: Pair) -> impl Iterator<Item = &Override<'v>> {
        self.overrides.iter().filter(move |change| pair.contains(change.selector))
    }

    /// The spec on such a cluster.
    fn spec(&self, pair: Pair) -> Value {
        let Some(template) = self.template else { return Value::Null };
        let mut spec = template.clone();
        self.overrides(pair).for_each(|change| json_patch::merge(&mut spec, change.patch));
        spec
    }

    /// The work to make that spec: a number of values.
    fn size(&self, pair: Pair) -> usize {
        let of_overrides: usize = self.overrides(pair).map(|change| change.size).sum();
        self.size + of_overrides + self.overrides.len()
    }
}

/// Number of values in `value`; a long text counts as several.
fn size(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(size).sum::<usize>(),
        Value::Object(fields) => 1 + fields.iter().map(|(name, value)| name.len() / TEXT + size(value)).sum::<usize>(),
        Value::String(text) => 1 + text.len() / TEXT,
        Value::Null | Value::Bool(_) | Value::Number(_) => 1,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The changes of Serving in a fleet.
    fn changed(old: &Value, new: &Value) -> Vec<String> {
        fleet_changes(Component::Serving, old, new)
    }

    fn fleet(template: &Value, overrides: &[(&str, Value)]) -> Value {
        let overrides: Vec<Value> = overrides
            .iter()
            .map(
                |(tier, patch)| json!({"clusterSelector": {"matchLabels": {"tier": tier}}, "serving": {"spec": patch}}),
            )
            .collect();
        json!({"serving": {"spec": template}, "overrides": overrides})
    }

    #[test]
    fn other_clusters_are_another_effect() {
        let in_region = |selector: Value| {
            let change = json!({"clusterSelector": {}, "propertySelector": selector, "serving": {"spec": {"registry": {"default": "r"}}}});
            json!({"serving": {"spec": {}}, "overrides": [change]})
        };
        let eu = in_region(json!({"matchLabels": {"region": "eu"}}));
        assert!(changed(&eu, &eu).is_empty());
        assert_eq!(changed(&eu, &in_region(json!({}))), ["spec.overrides"]);
    }

    #[test]
    fn templates_and_overrides_are_compared_by_their_effect() {
        let registry = json!({"registry": {"default": "r"}});
        let none = json!({});
        for (old, new, expected) in [
            (Value::Null, fleet(&json!({"version": "1.22"}), &[("a", json!({"version": "1.21"}))]), vec![]),
            (Value::Null, fleet(&registry, &[]), vec!["spec.serving.spec.registry"]),
            (fleet(&registry, &[]), json!({}), vec!["spec.serving.spec.registry"]),
            (
                Value::Null,
                fleet(&none, &[("a", none.clone()), ("b", registry.clone())]),
                vec!["spec.overrides[1].serving.spec.registry"],
            ),
            // What an override removes.
            (
                fleet(&registry, &[]),
                fleet(&registry, &[("a", json!({"registry": null}))]),
                vec!["spec.overrides[0].serving.spec.registry"],
            ),
            (
                fleet(&registry, &[]),
                fleet(&registry, &[("a", Value::Null)]),
                vec!["spec.overrides[0].serving.spec.registry"],
            ),
            (fleet(&none, &[]), fleet(&none, &[("a", json!({"registry": null}))]), vec![]),
            // What an override no longer does.
            (fleet(&none, &[("a", registry.clone())]), fleet(&none, &[]), vec!["spec.overrides"]),
            (
                fleet(&none, &[("a", registry.clone())]),
                fleet(&none, &[("b", registry.clone())]),
                vec!["spec.overrides"],
            ),
            // What stays, while something else changes.
            (
                fleet(&registry, &[("a", registry.clone()), ("b", json!({"version": "1.21"}))]),
                fleet(
                    &registry,
                    &[("c", json!({"version": "1.20"})), ("a", registry.clone()), ("b", json!({"version": "1.22"}))],
                ),
                vec![],
            ),
        ] {
            assert_eq!(changed(&old, &new), expected, "{old} to {new}");
        }
    }

    #[test]
    fn override_that_replaces_list_of_another_is_found() {
        let sized = |replicas: u32| json!({"workloads": [{"name": "w", "replicas": replicas}]});
        let with_env = json!({"workloads": [{"name": "w", "env": [{"container": "c", "envVars": []}]}]});
        let env = "serving.spec.workloads[w].env";
        let old = fleet(&json!({}), &[("a", with_env.clone()), ("z", with_env.clone())]);
        // Alone, and on clusters that all overrides select, the new one changes replicas only.
        let new = fleet(&json!({}), &[("a", with_env.clone()), ("b", sized(3)), ("z", with_env)]);
        assert_eq!(changed(&old, &new), [format!("spec.overrides[1].{env}")]);
        // Settings that need nothing may be in any order.
        let (one, other) = (("a", sized(1)), ("b", sized(2)));
        assert!(
            changed(&fleet(&json!({}), &[one.clone(), other.clone()]), &fleet(&json!({}), &[other, one])).is_empty()
        );
    }

    #[test]
    fn template_that_makes_override_ineffective_is_found() {
        let domain = [("a", json!({"config": {"domain": {"a.example": ""}}}))];
        let scaling = |map: &str| json!({"config": {map: {"max-scale": "7"}}});
        let template = |map: &str| json!({"config": {map: {}}});
        assert!(
            changed(&fleet(&scaling("autoscaler"), &domain), &fleet(&scaling("config-autoscaler"), &domain)).is_empty()
        );
        assert_eq!(
            changed(&fleet(&template("domain"), &domain), &fleet(&template("config-domain"), &domain)),
            ["spec.overrides"]
        );
    }

    #[test]
    fn component_without_template_has_no_overrides() {
        let mut old = fleet(&json!({}), &[("a", json!({"registry": {"default": "r"}}))]);
        let new = old.clone();
        old.as_object_mut().unwrap().remove("serving");
        assert_eq!(changed(&old, &new), ["spec.overrides[0].serving.spec.registry"]);
        assert!(fleet_changes(Component::Eventing, &old, &new).is_empty());
        assert!(changed(&old, &json!({"overrides": "x"})).is_empty());
    }

    #[test]
    fn work_is_bounded() {
        let change = |number: u32, version: &str| json!({"clusterSelector": {"matchLabels": {"n": number.to_string()}}, "serving": {"spec": {"version": version}}});
        let many = |version: &str| {
            let overrides: Vec<Value> = (0..1000).map(|number| change(number, version)).collect();
            json!({"serving": {"spec": {}}, "overrides": overrides})
        };
        assert_eq!(changed(&many("1"), &many("2")), ["spec.overrides"]);
        assert!(changed(&Value::Null, &many("1")).is_empty());
        let some = |version: &str, template: &Value| {
            let overrides: Vec<Value> = (0..100).map(|number| change(number, version)).collect();
            json!({"serving": {"spec": template}, "overrides": overrides})
        };
        let (small, large) = (json!({"version": "1.22"}), json!({"patches": "x".repeat(1 << 20)}));
        assert!(changed(&some("1", &small), &some("2", &small)).is_empty());
        assert_eq!(changed(&some("1", &large), &some("2", &large)), ["spec.overrides"]);
    }
}
