//! Validates a fleet, or a change of one, against the rules of fleets.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::Value;

use super::context::FleetContext;
use super::parse::{drop_nulls, parse_with_path};
use super::rule::Violation;
use super::violations::{limit, remove_existing};
use super::{fleet_clusters, fleet_gate, fleet_spec, fleet_template, protected};
use knative_operator_shared::api::{Kind, KnativeFleet};

/// Parses `object` as a fleet. Null counts as omitted, except in overrides, in which it removes a
/// field.
///
/// # Errors
///
/// The field and the problem.
pub fn parse_fleet(object: &Value) -> Result<KnativeFleet, Violation> {
    parse_with_path(object, "", Kind::Fleet).or_else(|_| {
        let mut object = object.clone();
        let overrides = object.pointer("/spec/overrides").filter(|overrides| !overrides.is_null()).cloned();
        drop_nulls(&mut object);
        if let Some(overrides) = overrides {
            object["spec"]["overrides"] = overrides;
        }
        parse_with_path(&object, "", Kind::Fleet)
    })
}

/// Violations of `fleet` by itself, as far as `context` tells.
pub fn validate_fleet(fleet: &KnativeFleet, context: &FleetContext<'_>) -> Vec<Violation> {
    let mut violations = all(fleet, context);
    limit(&mut violations);
    violations
}

fn all(fleet: &KnativeFleet, context: &FleetContext<'_>) -> Vec<Violation> {
    let mut violations = Vec::new();
    fleet_spec::check(&fleet.spec, &mut violations);
    fleet_gate::check(&fleet.spec, &mut violations);
    fleet_template::check(fleet, context, &mut violations);
    fleet_clusters::check(fleet, context, &mut violations);
    violations.extend(validate_fleet_metadata(&fleet.metadata));
    violations
}

/// Violations of the metadata of a fleet by itself.
pub fn validate_fleet_metadata(meta: &ObjectMeta) -> Vec<Violation> {
    let mut violations = Vec::new();
    protected::check_value(meta, &mut violations);
    violations
}

/// Violations of `new`, which replaces `old` if given. An update is never refused for a violation
/// that `old` already has.
pub fn validate_fleet_change(
    new: &KnativeFleet,
    old: Option<&KnativeFleet>,
    context: &FleetContext<'_>,
) -> Vec<Violation> {
    let mut violations = all(new, context);
    if let Some(old) = old {
        remove_existing(&mut violations, &all(old, context));
        fleet_clusters::check_steps(&new.spec, &old.spec, context, &mut violations);
    }
    limit(&mut violations);
    violations
}

/// The violation if the fleet with `meta` is protected from deletion.
pub fn validate_fleet_deletion(meta: &ObjectMeta) -> Option<Violation> {
    protected::check("KnativeFleet", meta)
}
