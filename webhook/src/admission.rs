//! Validates admission requests. Pure, given the facts about the cluster.

use knative_operator_rules as rules;
use knative_operator_rules::{Profile, RuleContext, Violation};
use knative_operator_shared::api::{Component, Knative, KnativeStatus};
use knative_operator_shared::label::{FLEET_FIELD_MANAGER, GROUP, PROTECTED, VERSION};
use serde::Deserialize;
use serde_json::Value;

use crate::cluster_facts::ClusterFacts;
use crate::fleet;
use crate::request::Request;

/// The component of `request`, if it is about a KnativeServing or KnativeEventing.
pub fn component(request: &Request) -> Option<Component> {
    let is_own = request.kind.group == GROUP && request.kind.version == VERSION && request.sub_resource.is_empty();
    Component::of_kind(&request.kind.kind).filter(|_| is_own)
}

/// Violations of the request: errors and warnings; empty if it is admitted. An update that changes
/// neither the spec nor an annotation that rules are about is always admitted, so that finalizers,
/// labels and status can always change.
pub fn validate(request: &Request, facts: &ClusterFacts) -> Vec<Violation> {
    let Some(component) = component(request) else { return fleet::validate(request, facts) };
    match request.operation.as_str() {
        "CREATE" => match rules::parse(component, &request.object) {
            Ok(new) => validate_change(&new.with_status(None), None, request, facts),
            Err(violation) => vec![violation],
        },
        "UPDATE" if is_untouched(request) => Vec::new(),
        "UPDATE" => match rules::parse(component, &request.object) {
            Ok(new) => validate_update(component, new, request, facts),
            Err(violation) => validate_unreadable(component, violation, request, facts),
        },
        "DELETE" => rules::parse(component, &request.old_object)
            .ok()
            .and_then(|old| rules::validate_deletion(&old))
            .into_iter()
            .collect(),
        _ => Vec::new(),
    }
}

/// Violations of the request, without what tells which clusters there are, and who uses them: for
/// users who may not know that.
pub fn validate_without_clusters(request: &Request, facts: &ClusterFacts) -> Vec<Violation> {
    if component(request).is_none() {
        return fleet::validate_without_clusters(request, facts);
    }
    let mut violations = validate(request, facts);
    violations.retain(|violation| violation.rule.id != rules::ONE_TARGET.id);
    violations
}

/// Violations of an update to `new`. The old object is parsed only if it matters: most updates are
/// valid.
fn validate_update(component: Component, new: Knative, request: &Request, facts: &ClusterFacts) -> Vec<Violation> {
    /// The target cluster.
    fn reference(object: &Value) -> &Value {
        &object["spec"]["clusterProfileRef"]
    }
    let old = &request.old_object;
    let new = new.with_status(KnativeStatus::deserialize(&old["status"]).ok());
    if reference(&request.object) == reference(old) {
        let violations = validate_resource(&new, request, facts);
        if !violations.iter().any(Violation::is_error) {
            return if new.is_terminating() { Vec::new() } else { violations };
        }
    }
    let Ok(old) = rules::parse(component, old) else {
        // The stored object is invalid: any valid one is an improvement.
        return validate_resource(&new, request, facts);
    };
    let mut violations = validate_change(&new, Some(&old), request, facts);
    if new.is_terminating() {
        violations.retain(|p| rules::ALWAYS_ENFORCED.contains(&p.rule));
    }
    violations
}

/// Violations of an update of a resource that can't be read because of `violation`: if its spec
/// stays, those of its annotations.
fn validate_unreadable(
    component: Component,
    violation: Violation,
    request: &Request,
    facts: &ClusterFacts,
) -> Vec<Violation> {
    let (new, old) = (&request.object, &request.old_object);
    if spec(new) != spec(old) {
        return vec![violation];
    }
    let is_same = |name: &str| new["metadata"]["annotations"][name] == old["metadata"]["annotations"][name];
    let is_protection = rules::ANNOTATIONS.iter().all(|name| *name == PROTECTED || is_same(name));
    let Some(known) = rules::parse_partially(component, new) else {
        // It comes off before a deletion.
        return if is_protection { Vec::new() } else { vec![violation] };
    };
    if known.is_terminating() {
        return Vec::new();
    }
    let mut violations = validate_resource(&known, request, facts);
    if let Some(old) = rules::parse_partially(component, old) {
        rules::remove_existing(&mut violations, &validate_resource(&old, request, facts));
    }
    violations.retain(|violation| violation.field.starts_with("metadata.annotations["));
    violations
}

/// Violations of `resource` by itself.
fn validate_resource(resource: &Knative, request: &Request, facts: &ClusterFacts) -> Vec<Violation> {
    let (catalog, profile, field_manager) = (facts.catalog(), profile(resource, facts), field_manager(request));
    rules::validate(resource, &RuleContext { catalog: catalog.as_deref(), profile, competitor: None, field_manager })
}

fn field_manager(request: &Request) -> Option<&str> {
    Some(request.options.field_manager.as_str())
}

fn profile(resource: &Knative, facts: &ClusterFacts) -> Option<Profile> {
    resource.common().cluster_profile_ref.as_ref().and_then(|reference| facts.profile(reference))
}

fn validate_change(new: &Knative, old: Option<&Knative>, request: &Request, facts: &ClusterFacts) -> Vec<Violation> {
    let (catalog, reference) = (facts.catalog(), &new.common().cluster_profile_ref);
    let name = (new.namespace().to_owned(), new.name().to_owned());
    let find = || {
        let same = facts.competitor(new.component(), reference, &name);
        // A fleet counts a cluster once by itself; one of its clusters must not keep it from
        // others.
        let is_of_fleet = field_manager(request) == Some(FLEET_FIELD_MANAGER);
        same.or_else(|| facts.competitor_on_cluster(new.component(), reference, &name).filter(|_| !is_of_fleet))
    };
    let competitor = if old.is_none() { find() } else { None };
    let context = RuleContext {
        catalog: catalog.as_deref(),
        profile: profile(new, facts),
        competitor: competitor.as_deref(),
        field_manager: field_manager(request),
    };
    rules::validate_change(new, old, &context)
}

/// The spec; a missing one equals an empty one.
fn spec(object: &Value) -> Option<&Value> {
    object.get("spec").filter(|spec| !spec.is_null() && spec.as_object().is_none_or(|fields| !fields.is_empty()))
}

fn is_untouched(request: &Request) -> bool {
    /// The annotations that rules are about.
    fn annotations(object: &Value) -> [&Value; rules::ANNOTATIONS.len()] {
        rules::ANNOTATIONS.map(|name| &object["metadata"]["annotations"][name])
    }
    let (new, old) = (&request.object, &request.old_object);
    spec(new) == spec(old) && annotations(new) == annotations(old)
}

/// Errors that the mutating webhook reports. Errors in types are left to the API server, which
/// checks types and required fields after the mutating webhooks, and lists all errors; what depends
/// on clusters, to the validating webhook, which asks about permissions.
pub fn validate_before_schema(request: &Request, facts: &ClusterFacts) -> Vec<Violation> {
    let mut violations = validate_without_clusters(request, facts);
    violations.retain(|p| p.rule.id != rules::READABLE.id && p.is_error());
    violations
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{validate as judge_with, validate_before_schema as judge_early_with, *};
    use crate::request::Kind;

    fn validate(request: &Request) -> Vec<Violation> {
        judge_with(request, &ClusterFacts::default())
    }

    fn validate_before_schema(request: &Request) -> Vec<Violation> {
        judge_early_with(request, &ClusterFacts::default())
    }

    fn request(kind: &str, operation: &str, object: Value, old: Value) -> Request {
        Request {
            uid: "1".into(),
            kind: Kind { group: GROUP.into(), version: VERSION.into(), kind: kind.into() },
            operation: operation.into(),
            object,
            old_object: old,
            ..Default::default()
        }
    }

    fn object(spec: &Value) -> Value {
        json!({"apiVersion": "operator.knative.dev/v1beta1", "metadata": {"name": "x", "namespace": "y"}, "spec": spec})
    }

    fn reference(name: &str) -> Value {
        object(&json!({"clusterProfileRef": {"name": name, "namespace": "fleet"}}))
    }

    #[test]
    fn reference_is_immutable() {
        for kind in ["KnativeServing", "KnativeEventing"] {
            for (old, new, allowed) in [
                (reference("a"), reference("b"), false),
                (reference("a"), object(&json!({})), false),
                (object(&json!({})), reference("a"), false),
                (reference("a"), reference("a"), true),
                (
                    reference("a"),
                    object(&json!({"clusterProfileRef": {"name": "a", "namespace": "fleet"}, "version": "1.22"})),
                    true,
                ),
            ] {
                let violations = validate(&request(kind, "UPDATE", new.clone(), old.clone()));
                assert_eq!(violations.is_empty(), allowed, "{kind}: {old} to {new}: {violations:?}");
            }
        }
    }

    #[test]
    fn other_requests_are_admitted() {
        let mut other = request("KnativeServing", "UPDATE", reference("b"), reference("a"));
        other.sub_resource = "status".into();
        assert!(validate(&other).is_empty());
        assert!(validate(&request("ConfigMap", "UPDATE", reference("b"), reference("a"))).is_empty());
        assert!(validate(&request("KnativeServing", "DELETE", Value::Null, reference("a"))).is_empty());
    }

    #[test]
    fn unchanged_invalid_spec_is_admitted() {
        let mut new = object(&json!({"version": 7}));
        let old = new.clone();
        new["metadata"]["finalizers"] = json!(["x"]);
        assert!(validate(&request("KnativeServing", "UPDATE", new.clone(), old.clone())).is_empty());
        for (value, rules) in [("orphan", &["on-delete-orphan"][..]), ("keep", &["on-delete"])] {
            new["metadata"]["annotations"] = json!({"operator.knative.dev/on-delete": value});
            let violations = validate(&request("KnativeServing", "UPDATE", new.clone(), old.clone()));
            assert_eq!(violations.iter().map(|violation| violation.rule.id).collect::<Vec<_>>(), rules);
        }
    }

    #[test]
    fn protection_can_be_taken_off_what_is_invalid() {
        let protected = json!({PROTECTED: "true", "operator.knative.dev/on-delete": "keep"});
        let unprotected = json!({"operator.knative.dev/on-delete": "keep"});
        for (spec, is_terminating) in
            [(json!({"version": 7}), false), (json!({"version": 7}), true), (json!("7"), false)]
        {
            let mut old = object(&spec);
            if is_terminating {
                old["metadata"]["deletionTimestamp"] = json!("2026-11-01T00:00:00Z");
            }
            let mut new = old.clone();
            (old["metadata"]["annotations"], new["metadata"]["annotations"]) = (protected.clone(), unprotected.clone());
            let violations = validate(&request("KnativeServing", "UPDATE", new, old));
            assert!(!violations.iter().any(Violation::is_error), "{spec}: {violations:?}");
        }
    }

    #[test]
    fn annotation_is_checked_if_the_spec_stays() {
        for name in rules::ANNOTATIONS {
            let old = object(&json!({"version": "1.22"}));
            let mut new = old.clone();
            new["metadata"]["annotations"] = json!({name: "mistyped"});
            let violations = validate(&request("KnativeServing", "UPDATE", new.clone(), old.clone()));
            let fields: Vec<_> = violations.iter().map(|violation| violation.field.as_str()).collect();
            assert_eq!(fields, [format!("metadata.annotations[{name}]")]);
            // A change of something else says nothing.
            let mut other = new.clone();
            other["metadata"]["labels"] = json!({"a": "b"});
            assert!(validate(&request("KnativeServing", "UPDATE", other, new)).is_empty(), "{name}");
        }
    }

    #[test]
    fn rules_about_annotations_are_checked_if_the_spec_stays() {
        let mut checked = Vec::new();
        for rule in rules::ALL {
            let (example, Some(after)) = (&rule.invalid, rule.invalid.after) else { continue };
            let new = example.object(after);
            if example.before.is_some() || new["metadata"]["annotations"].is_null() {
                continue;
            }
            let mut old = new.clone();
            old["metadata"]["annotations"] = Value::Null;
            let mut change = request(example.kind.name(), "UPDATE", new, old);
            change.kind.version = example.kind.version().to_owned();
            let violations = validate(&change);
            assert!(violations.iter().any(|violation| violation.rule.id == rule.id), "{}: {violations:?}", rule.id);
            checked.push(rule.id);
        }
        assert!(["on-delete", "on-unreachable", "minor-versions"].iter().all(|id| checked.contains(id)), "{checked:?}");
    }

    #[test]
    fn invalid_types_are_refused() {
        let violations = validate(&request(
            "KnativeServing",
            "CREATE",
            object(&json!({"ingress": {"kourier": {"enabled": "yes"}}})),
            Value::Null,
        ));
        assert_eq!(violations.len(), 1);
        assert!(violations[0].message.contains("invalid type"), "{violations:?}");
        let early = request(
            "KnativeServing",
            "CREATE",
            object(&json!({"ingress": {"kourier": {"enabled": "yes"}}})),
            Value::Null,
        );
        assert!(validate_before_schema(&early).is_empty());
    }
}
