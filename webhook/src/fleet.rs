//! Validates admission requests for KnativeFleets. Pure, given the facts about the cluster.

use knative_operator_rules as rules;
use knative_operator_rules::{FleetContext, Violation};
use knative_operator_shared::label::{FLEET_VERSION, GROUP};
use kube::core::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use crate::cluster_facts::ClusterFacts;
use crate::request::Request;

/// Kinds of fleets.
pub const KINDS: [&str; 2] = [FLEET, APPROVAL];
/// Kind of a fleet.
pub const FLEET: &str = "KnativeFleet";
const APPROVAL: &str = "KnativeFleetApproval";
/// Start of the paths of overrides.
const OVERRIDES: &str = "spec.overrides[";

fn is_kind(request: &Request, kind: &str) -> bool {
    let of = &request.kind;
    of.kind == kind && of.group == GROUP && of.version == FLEET_VERSION && request.sub_resource.is_empty()
}

/// Whether `request` is about a KnativeFleet.
pub fn is_fleet(request: &Request) -> bool {
    is_kind(request, FLEET)
}

/// Whether `request` is about a KnativeFleetApproval.
pub fn is_approval(request: &Request) -> bool {
    is_kind(request, APPROVAL)
}

/// Violations of a request for a KnativeFleet. An update that doesn't change the spec is always
/// admitted, with a warning if it changes an annotation to a value without effect.
pub fn validate(request: &Request, facts: &ClusterFacts) -> Vec<Violation> {
    validate_with(request, facts, true)
}

/// The same, without what depends on which clusters there are, for users who may not know that: an
/// override may be valid only with others for the same cluster.
pub fn validate_without_clusters(request: &Request, facts: &ClusterFacts) -> Vec<Violation> {
    let mut violations = validate_with(request, facts, false);
    violations.retain(|violation| !violation.field.starts_with(OVERRIDES));
    violations
}

fn validate_with(request: &Request, facts: &ClusterFacts, has_clusters: bool) -> Vec<Violation> {
    if !is_fleet(request) {
        return Vec::new();
    }
    match request.operation.as_str() {
        "UPDATE" if request.object.get("spec") == request.old_object.get("spec") => metadata_violations(request),
        "CREATE" | "UPDATE" => match rules::parse_fleet(&request.object) {
            Ok(new) => {
                let old = rules::parse_fleet(&request.old_object).ok().filter(|_| request.operation == "UPDATE");
                let (catalog, profiles) = (facts.catalog(), if has_clusters { facts.profiles() } else { None });
                let context = FleetContext { catalog: catalog.as_deref(), profiles: profiles.as_deref() };
                let violations = rules::validate_fleet_change(&new, old.as_ref(), &context);
                if new.metadata.deletion_timestamp.is_some() { Vec::new() } else { violations }
            }
            Err(violation) => vec![violation],
        },
        "DELETE" => {
            let meta = ObjectMeta::deserialize(&request.old_object["metadata"]).ok();
            meta.and_then(|meta| rules::validate_fleet_deletion(&meta)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// Violations of what `request` changes in the annotations alone.
fn metadata_violations(request: &Request) -> Vec<Violation> {
    let annotations = |object: &Value| rules::ANNOTATIONS.map(|name| object["metadata"]["annotations"][name].clone());
    if annotations(&request.object) == annotations(&request.old_object) {
        return Vec::new();
    }
    let meta = ObjectMeta::deserialize(&request.object["metadata"]).ok();
    let meta = meta.filter(|meta| meta.deletion_timestamp.is_none());
    meta.map(|meta| rules::validate_fleet_metadata(&meta)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use knative_operator_shared::api::ClusterProfileReference;
    use serde_json::json;

    use super::*;
    use crate::cluster_facts::ProfileFacts;
    use crate::request::Kind;
    use knative_operator_rules::authorization::author::User;

    fn request(kind: &str, operation: &str, object: Value, old_object: Value) -> Request {
        Request {
            kind: Kind { group: GROUP.into(), version: FLEET_VERSION.into(), kind: kind.into() },
            operation: operation.into(),
            user_info: User { username: "jane".into(), ..User::default() },
            object,
            old_object,
            ..Request::default()
        }
    }

    fn fleet(patch: &Value) -> Value {
        let mut fleet = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": "f", "namespace": "n"},
            "spec": {"placement": {"clusterSelector": {}}, "serving": {"spec": {"version": "1.22"}}}});
        json_patch::merge(&mut fleet, patch);
        fleet
    }

    #[test]
    fn fleets_are_validated() {
        let facts = ClusterFacts::default();
        let rules = |request: &Request| -> Vec<&str> {
            validate(request, &facts).iter().map(|violation| violation.rule.id).collect()
        };
        let (valid, invalid) = (fleet(&json!({})), fleet(&json!({"spec": {"serving": {"spec": {"version": "x"}}}})));
        let create = |object: &Value| request(FLEET, "CREATE", object.clone(), Value::Null);
        assert!(rules(&create(&valid)).is_empty());
        assert_eq!(rules(&create(&invalid)), ["version-syntax"]);
        assert_eq!(rules(&create(&fleet(&json!({"spec": {"rollout": {"paused": 1}}})))), ["readable"]);
        assert_eq!(rules(&request(FLEET, "UPDATE", invalid.clone(), valid.clone())), ["version-syntax"]);
        assert!(rules(&request(FLEET, "UPDATE", invalid.clone(), invalid)).is_empty());
        let protected = fleet(&json!({"metadata": {"annotations": {"operator.knative.dev/protected": "true"}}}));
        assert_eq!(rules(&request(FLEET, "DELETE", Value::Null, protected)), ["protected"]);
        let mistyped = fleet(&json!({"metadata": {"annotations": {"operator.knative.dev/protected": "yes"}}}));
        assert_eq!(rules(&request(FLEET, "UPDATE", mistyped.clone(), valid.clone())), ["no-effect"]);
        assert!(rules(&request(FLEET, "UPDATE", mistyped.clone(), mistyped)).is_empty());
        assert!(rules(&request(FLEET, "DELETE", Value::Null, valid.clone())).is_empty());
        let cluster = ClusterProfileReference { name: "a".into(), namespace: "other".into() };
        facts.set_profiles(HashMap::from([(cluster, ProfileFacts::default())]));
        assert_eq!(rules(&create(&valid)), ["fleet-no-clusters", "fleet-no-clusters"]);
        assert!(validate_without_clusters(&create(&valid), &facts).is_empty());
        // On the clusters of both, it is valid.
        let manifests = json!({"manifests": [{"URL": "https://example.com/serving.yaml"}]});
        let layered = fleet(&json!({"spec": {"serving": {"spec": {"version": null}}, "overrides": [
            {"clusterSelector": {}, "serving": {"spec": {"version": "1.22.1"}}},
            {"clusterSelector": {}, "serving": {"spec": manifests}}]}}));
        assert!(validate_without_clusters(&create(&layered), &facts).is_empty());
    }
}
