//! Resources of a fleet, which are changed by their fleet.

use super::context::RuleContext;
use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::Knative;
use knative_operator_shared::label::{FIELD_MANAGER, FLEET_FIELD_MANAGER};

/// The resources of a fleet are changed by their fleet.
pub static MANAGED: Rule = Rule {
    id: "fleet-managed",
    severity: Severity::Warning,
    requirement: "A resource of a KnativeFleet is changed by its fleet, which repairs other changes.",
    valid: Example::serving(r#"{"version": "1.22"}"#),
    invalid: Example::serving(
        r#"{"metadata": {"ownerReferences": [{"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "name": "prod", "uid": "1"}]}, "spec": {"version": "1.22"}}"#,
    ),
};

/// The warning if somebody else than its fleet changes `resource`.
pub fn check(resource: &Knative, context: &RuleContext<'_>, violations: &mut Vec<Violation>) {
    let Some(manager) = context.field_manager else { return };
    let mut owners = resource.meta().owner_references.iter().flatten();
    if let Some(owner) = owners.find(|owner| owner.kind == "KnativeFleet")
        && ![FIELD_MANAGER, FLEET_FIELD_MANAGER].contains(&manager)
    {
        violations.push(MANAGED.at(
            "spec",
            format!("KnativeFleet {} manages this resource, and repairs the change", owner.name),
            format!("change the KnativeFleet: kubectl edit knativefleet {} -n {}", owner.name, resource.namespace()),
        ));
    }
}
