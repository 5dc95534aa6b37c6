//! Validates a resource, or a change of one, against all rules.

use super::context::RuleContext;
use super::rule::Violation;
use super::violations::{limit, remove_existing};
use super::{
    availability, budgets, certificates, config, deletion, deprecated, eventing, ingress, istio, kourier, managed,
    manifests, meta, namespace, patches, pod, probes, protected, quantity, reference, registry, target, version,
    workloads,
};
use knative_operator_shared::api::Knative;
use knative_operator_shared::label::{MINOR_VERSIONS, ON_DELETE, ON_UNREACHABLE, PROTECTED};

/// The annotations that rules are about. They are checked if the spec stays, too.
pub const ANNOTATIONS: [&str; 4] = [ON_UNREACHABLE, ON_DELETE, MINOR_VERSIONS, PROTECTED];

/// Violations of `new`, which replaces `old` if given, as far as `context` tells. An update is
/// never refused for a violation that `old` already has.
pub fn validate_change(new: &Knative, old: Option<&Knative>, context: &RuleContext<'_>) -> Vec<Violation> {
    // All of both: those that are kept of one may not be among those that are kept of the other.
    let mut violations = all(new, context);
    if let Some(old) = old {
        remove_existing(&mut violations, &all(old, context));
        violations.extend(reference::check_immutable(new, old));
    } else {
        violations.extend(target::check_competitor(new, context));
    }
    limit(&mut violations);
    violations
}

/// Violations of `resource` by itself, as far as `context` tells: a limited number.
pub fn validate(resource: &Knative, context: &RuleContext<'_>) -> Vec<Violation> {
    let mut violations = all(resource, context);
    limit(&mut violations);
    violations
}

fn all(resource: &Knative, context: &RuleContext<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    reference::check_names(resource, &mut violations);
    target::profile(resource, context, &mut violations);
    version::check(resource, context, &mut violations);
    manifests::check(resource, &mut violations);
    registry::check(resource, &mut violations);
    availability::check(resource, &mut violations);
    workloads::check(resource, &mut violations);
    quantity::check(resource, &mut violations);
    meta::check(resource, &mut violations);
    pod::check(resource, &mut violations);
    probes::check(resource, &mut violations);
    budgets::check(resource, &mut violations);
    deprecated::check(resource, &mut violations);
    ingress::check(resource, &mut violations);
    istio::check(resource, &mut violations);
    kourier::check(resource, &mut violations);
    config::check(resource, &mut violations);
    certificates::check(resource, &mut violations);
    eventing::check(resource, &mut violations);
    namespace::check(resource, &mut violations);
    patches::check(resource, context, &mut violations);
    deletion::check(resource, &mut violations);
    protected::check_value(resource.meta(), &mut violations);
    managed::check(resource, context, &mut violations);
    if let Some(names) = context.names(resource) {
        violations.extend(names.unmatched(resource));
    }
    violations
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::parse::parse;
    use super::super::violations::MAX_VIOLATIONS;
    use super::*;
    use knative_operator_shared::api::Component;
    use serde_json::{Value, json};

    fn with_config(config: &Value) -> Knative {
        let object = json!({"metadata": {"name": "x", "namespace": "y"}, "spec": {"config": config}});
        parse(Component::Serving, &object).unwrap()
    }

    fn of_config(config: &Value) -> Vec<Violation> {
        validate(&with_config(config), &RuleContext::default())
    }

    #[test]
    fn update_that_corrects_some_of_many_violations_is_not_refused() {
        let keys = |from: usize| -> BTreeMap<String, &str> { (from..3000).map(|n| (format!("/{n:04}"), "")).collect() };
        let [old, new] = [0, 1].map(|from| with_config(&json!({"domain": keys(from)})));
        assert_eq!(validate_change(&new, None, &RuleContext::default()).len(), MAX_VIOLATIONS);
        let violations = validate_change(&new, Some(&old), &RuleContext::default());
        assert!(!violations.iter().any(Violation::is_error), "{violations:?}");
    }

    #[test]
    fn violations_are_bounded() {
        let keys: BTreeMap<String, &str> = (0..20_000).map(|number| (format!("/{number}"), "")).collect();
        let violations = of_config(&json!({"domain": keys}));
        assert!(violations.len() == MAX_VIOLATIONS && violations.iter().all(Violation::is_error));
        // A name of any length is not repeated for each of its keys.
        let long = of_config(&json!({("x/".repeat(10_000)): keys}));
        assert_eq!(long.iter().filter(|violation| violation.field.starts_with("spec.config")).count(), 1);
    }
}
