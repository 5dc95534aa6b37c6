//! Validates a resource, or a change of one, against all rules.

use super::context::RuleContext;
use super::rule::Violation;
use super::{
    availability, budgets, certificates, config, deletion, deprecated, eventing, fleet, ingress, istio, kourier,
    manifests, meta, namespace, patches, pod, probes, quantity, reference, registry, target, version, workloads,
};
use knative_operator_shared::api::Knative;

/// Violations of `new`, which replaces `old` if given, as far as `context` tells. An update is
/// never refused for a violation that `old` already has.
pub fn validate_change(new: &Knative, old: Option<&Knative>, context: &RuleContext<'_>) -> Vec<Violation> {
    let mut violations = validate(new, context);
    let Some(old) = old else {
        violations.extend(target::check_competitor(new, context));
        return violations;
    };
    remove_existing(&mut violations, validate(old, context));
    violations.extend(reference::check_immutable(new, old));
    violations
}

/// Removes the errors that were there `before`, from `violations`.
pub fn remove_existing(violations: &mut Vec<Violation>, mut before: Vec<Violation>) {
    before.retain(Violation::is_error);
    // One for one: a violation that occurs twice now and once before is new.
    violations.retain(|violation| match before.iter().position(|b| b.is_same(violation)) {
        Some(index) => {
            before.swap_remove(index);
            false
        }
        None => true,
    });
}

/// Violations of `resource` by itself, as far as `context` tells.
pub fn validate(resource: &Knative, context: &RuleContext<'_>) -> Vec<Violation> {
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
    fleet::check_managed(resource, context, &mut violations);
    if let Some(names) = context.names(resource) {
        violations.extend(names.unmatched(resource));
    }
    violations
}
