//! The question about what approvals protect: who may change it can do without them. These are the
//! stages of a fleet and what they cover, and the state of its rollout, which its resources record.

use std::collections::BTreeSet;

use serde_json::Value;

use super::permission::Permission;
use super::questions::Question;
use super::write::Write;
use knative_operator_shared::api::Kind;
use knative_operator_shared::label::{CONFIRM_REMOVAL, FLEET_ANNOTATIONS, FLEET_LABELS, ON_DELETE, PROTECTED};

/// Annotations of a resource of a fleet that decide whether it is deleted, and what that leaves.
const CHILD_ANNOTATIONS: [&str; 2] = [ON_DELETE, PROTECTED];
/// Size of the annotations of a resource of a fleet as JSON, in bytes, from which on more of them
/// need the permission, and the same of labels and owners. Kubernetes permits 256 KiB.
const MAX_METADATA: usize = 64 << 10;

/// The question about `write`, if it changes what approvals protect.
pub fn about(write: &Write<'_>) -> Option<Question> {
    let fields = match (write.kind, write.old) {
        (Kind::Component(_), _) => of_resource(write.new, write.before()),
        (Kind::Fleet, _) => of_fleet(write.new, write.before()),
    };
    (!fields.is_empty()).then(|| Question::new(fields.join(", "), Permission::to_approve(write.namespace)))
}

/// The question about the deletion of `object` in `namespace`. Without it, a fleet could be deleted
/// and created again without its approvals, and a resource of a fleet, which uninstalls what was
/// approved.
pub fn about_deletion(kind: Kind, namespace: &str, object: &Value) -> Option<Question> {
    let field = match kind {
        Kind::Fleet => needs_approvals(object).then_some("spec.rollout.stages"),
        Kind::Component(_) => (!owners(object).is_empty()).then_some("metadata.ownerReferences"),
    };
    field.map(|field| Question::new(field, Permission::to_approve(namespace)))
}

/// Whether a stage of `fleet` has an approval.
fn needs_approvals(fleet: &Value) -> bool {
    let mut stages = fleet["spec"]["rollout"]["stages"].as_array().into_iter().flatten();
    stages.any(|stage| content(&stage["approval"]).is_some())
}

/// The changed fields of a fleet that had a stage with an approval.
///
/// - Stages and placement decide which cluster needs an approval. A cluster that is left out, and
///   is back after the rollout, would have missed its turn.
/// - `removal` decides which clusters leave without an approval, and whether their resources stay
///   without the fleet, where nothing needs an approval.
/// - `onFailure` lets clusters return to what they had before.
/// - The garbage collector deletes a fleet whose owners don't exist.
/// - `confirm-removal` confirms the deletion of the fleet, or of a component.
///
/// The templates are what is approved. `paused` only delays what was approved.
fn of_fleet(new: &Value, old: &Value) -> Vec<String> {
    // Also before there are approvals, which would not protect from owners that are there already.
    let owners = |fleet: &Value| content(&fleet["metadata"]["ownerReferences"]).cloned();
    let owners = (owners(new) != owners(old)).then(|| "metadata.ownerReferences".to_owned());
    let confirmed = |fleet: &Value| fleet["metadata"]["annotations"][CONFIRM_REMOVAL].clone();
    if !needs_approvals(old) {
        // Set before the approvals, or with them, it would confirm what comes later.
        let is_early = needs_approvals(new) && !confirmed(new).is_null();
        let early = is_early.then(|| format!("metadata.annotations[{CONFIRM_REMOVAL}]"));
        return owners.into_iter().chain(early).collect();
    }
    let (spec, before) = (&new["spec"], &old["spec"]);
    let pairs = [
        ("spec.placement", &spec["placement"], &before["placement"]),
        ("spec.removal", &spec["removal"], &before["removal"]),
        ("spec.rollout.onFailure", &spec["rollout"]["onFailure"], &before["rollout"]["onFailure"]),
        ("spec.rollout.stages", &spec["rollout"]["stages"], &before["rollout"]["stages"]),
    ];
    let changed = pairs.into_iter().filter(|(_, new, old)| content(new) != content(old));
    let confirms = confirmed(new) != confirmed(old);
    let confirmed = confirms.then(|| format!("metadata.annotations[{CONFIRM_REMOVAL}]"));
    owners.into_iter().chain(changed.map(|(field, ..)| field.to_owned())).chain(confirmed).collect()
}

/// The changed fields of a resource that record the state of a rollout. The version in the spec of
/// a resource of a fleet is one of them: it is the step between minor versions.
fn of_resource(new: &Value, old: &Value) -> Vec<String> {
    let mut fields = Vec::new();
    for (kind, names) in [("annotations", &FLEET_ANNOTATIONS[..]), ("labels", &FLEET_LABELS[..])] {
        let is_changed = |name: &&&str| new["metadata"][kind][**name] != old["metadata"][kind][**name];
        fields.extend(names.iter().filter(is_changed).map(|name| format!("metadata.{kind}[{name}]")));
    }
    let before = owners(old);
    if owners(new) != before {
        fields.push("metadata.ownerReferences".to_owned());
    }
    if !before.is_empty() {
        fields.extend(of_child(new, old));
    }
    fields
}

/// The changed fields of a resource of a fleet that stop or skip a rollout or a removal. Its other
/// annotations are free, as those of GitOps tools.
fn of_child(new: &Value, old: &Value) -> Vec<String> {
    let (meta, before) = (&new["metadata"], &old["metadata"]);
    let mut fields = Vec::new();
    // A finalizer holds a deletion, which the rollout waits for.
    if content(&meta["finalizers"]) != content(&before["finalizers"]) {
        fields.push("metadata.finalizers".to_owned());
    }
    let is_changed = |name: &&&str| meta["annotations"][**name] != before["annotations"][**name];
    fields.extend(CHILD_ANNOTATIONS.iter().filter(is_changed).map(|name| format!("metadata.annotations[{name}]")));
    // With more than Kubernetes stores, the operator could write nothing.
    let size = |object: &Value, kind: &str| object["metadata"][kind].to_string().len();
    let is_large = |kind: &&str| size(new, kind) > MAX_METADATA && size(new, kind) > size(old, kind);
    let large = ["annotations", "labels", "ownerReferences"].into_iter().filter(is_large);
    fields.extend(large.map(|kind| format!("metadata.{kind}")));
    if content(&new["spec"]) != content(&old["spec"]) {
        fields.push("spec".to_owned());
    }
    fields
}

/// The references of `object` to fleets as its owners.
fn owners(object: &Value) -> BTreeSet<String> {
    let all = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    all.filter(|owner| owner["kind"] == Kind::Fleet.name()).map(ToString::to_string).collect()
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use knative_operator_shared::api::Component;
    use knative_operator_shared::label::{FLEET, FLEET_CLUSTER, FLEET_CONTENT, FLEET_REVISION, TRIGGER};

    const SERVING: Kind = Kind::Component(Component::Serving);

    /// The fields that are asked about.
    fn asked(kind: Kind, new: &Value, old: &Value) -> Option<String> {
        let question = about(&Write { kind, namespace: "tenant", new, old: (!old.is_null()).then_some(old) })?;
        assert_eq!(question.permission, Permission::to_approve("tenant"));
        Some(question.field)
    }

    #[test]
    fn weaker_approval_needs_the_permission_to_approve() {
        let fleet = |patch: &Value| {
            let mut fleet = json!({"spec": {
                "placement": {"clusterSelector": {"matchLabels": {"env": "prod"}}, "namespaces": ["f"]},
                "serving": {"spec": {"version": "1.22"}},
                "rollout": {"stages": [
                    {"name": "canary", "clusterSelector": {"matchLabels": {"tier": "canary"}}},
                    {"name": "prod", "approval": "Required"},
                ]},
            }});
            json_patch::merge(&mut fleet, &json!({"spec": patch}));
            fleet
        };
        let old = fleet(&json!({}));
        let stages = |stages: Value| json!({"rollout": {"stages": stages}});
        let prod = json!({"name": "prod", "approval": "Required"});
        for (patch, expected) in [
            // What is approved.
            (json!({"serving": {"spec": {"version": "1.23"}}}), None),
            (json!({"overrides": [{"clusterSelector": {}, "serving": {"spec": {"version": "1.23"}}}]}), None),
            (json!({"rollout": {"paused": true}, "revisionHistoryLimit": 1}), None),
            (json!({"removal": {}}), None),
            // The approval is gone, or has nothing to cover.
            (json!({"rollout": null}), Some("spec.rollout.stages")),
            (stages(json!([{"name": "prod"}])), Some("spec.rollout.stages")),
            (stages(json!([{"name": "canary", "clusterSelector": {}}, prod])), Some("spec.rollout.stages")),
            (stages(json!([{"name": "early"}, prod])), Some("spec.rollout.stages")),
            (json!({"placement": {"namespaces": ["f", "g"]}}), Some("spec.placement")),
            (json!({"placement": {"clusterSelector": {"matchLabels": {"tier": "canary"}}}}), Some("spec.placement")),
            (json!({"placement": {"clusterSelector": null, "decision": {"key": "k"}}}), Some("spec.placement")),
            // Clusters leave, or return, without one.
            (json!({"removal": {"policy": "Orphan"}}), Some("spec.removal")),
            (json!({"removal": {"maxAtOnce": "100%"}}), Some("spec.removal")),
            (json!({"rollout": {"onFailure": "Rollback"}}), Some("spec.rollout.onFailure")),
            (
                json!({"placement": {"namespaces": ["*"]}, "rollout": {"stages": null}}),
                Some("spec.placement, spec.rollout.stages"),
            ),
        ] {
            assert_eq!(asked(Kind::Fleet, &fleet(&patch), &old).as_deref(), expected, "{patch}");
        }
        let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "1"}]);
        let owned = json!({"metadata": {"ownerReferences": owner}, "spec": old["spec"]});
        for before in [&old, &fleet(&stages(json!([]))), &Value::Null] {
            let before = if before.is_null() { Value::Null } else { json!({"spec": owned["spec"]}) };
            assert_eq!(asked(Kind::Fleet, &owned, &before).as_deref(), Some("metadata.ownerReferences"));
        }
        // Nothing was approved before.
        let without = fleet(&stages(json!([{"name": "prod"}])));
        let of_deletion =
            |kind: Kind, object: &Value| about_deletion(kind, "tenant", object).map(|question| question.permission);
        assert_eq!(of_deletion(Kind::Fleet, &without), None);
        assert_eq!(of_deletion(Kind::Fleet, &old), Some(Permission::to_approve("tenant")));
        assert_eq!(of_deletion(SERVING, &owned), None);
        let child = json!({"metadata": {"ownerReferences": [{"kind": "KnativeFleet", "name": "prod", "uid": "1"}]}});
        assert_eq!(of_deletion(SERVING, &child), Some(Permission::to_approve("tenant")));
        assert_eq!(asked(Kind::Fleet, &old, &without), None);
        assert_eq!(asked(Kind::Fleet, &old, &Value::Null), None);
    }

    #[test]
    fn state_of_a_rollout_needs_the_permission_to_approve() {
        let owner = |kind: &str| json!([{"apiVersion": "v1", "kind": kind, "name": "prod", "uid": "1"}]);
        let plain = json!({"metadata": {"name": "x"}, "spec": {"version": "1.22"}});
        let mut child = plain.clone();
        child["metadata"] = json!({"name": "x", "labels": {FLEET: "prod", FLEET_CLUSTER: "a"},
            "annotations": {FLEET_REVISION: "prod-1", FLEET_CONTENT: "1"}, "ownerReferences": owner(Kind::Fleet.name())});
        let with = |object: &Value, patch: Value| {
            let mut object = object.clone();
            json_patch::merge(&mut object, &patch);
            object
        };
        let annotated = |name: &str, value: &str| json!({"metadata": {"annotations": {name: value}}});
        for (new, old, expected) in [
            (plain.clone(), Value::Null, None),
            (child.clone(), child.clone(), None),
            (with(&plain, json!({"spec": {"version": "1.23"}})), plain.clone(), None),
            (with(&plain, json!({"metadata": {"ownerReferences": owner("ConfigMap")}})), Value::Null, None),
            (with(&child, annotated(TRIGGER, "1")), child.clone(), None),
            (
                with(&child, json!({"metadata": {"labels": {"l": "1"}}, "status": {"version": "1"}})),
                child.clone(),
                None,
            ),
            (with(&plain, json!({"metadata": {"finalizers": ["x"]}})), plain.clone(), None),
            (with(&plain, annotated(PROTECTED, "true")), plain.clone(), None),
            (
                with(&child, json!({"metadata": {"finalizers": ["x"]}})),
                child.clone(),
                Some("metadata.finalizers".to_owned()),
            ),
            (
                child.clone(),
                with(&child, json!({"metadata": {"finalizers": ["x"]}})),
                Some("metadata.finalizers".to_owned()),
            ),
            (
                with(&child, annotated(ON_DELETE, "orphan")),
                child.clone(),
                Some(format!("metadata.annotations[{ON_DELETE}]")),
            ),
            (
                child.clone(),
                with(&child, annotated(PROTECTED, "true")),
                Some(format!("metadata.annotations[{PROTECTED}]")),
            ),
            (with(&child, annotated("a", &"x".repeat(60 << 10))), child.clone(), None),
            (
                with(&child, annotated("a", &"x".repeat(64 << 10))),
                child.clone(),
                Some("metadata.annotations".to_owned()),
            ),
            // There are less of them.
            (
                with(&child, annotated("a", &"x".repeat(70 << 10))),
                with(&child, annotated("a", &"x".repeat(80 << 10))),
                None,
            ),
            (
                with(&plain, annotated(FLEET_REVISION, "prod-2")),
                Value::Null,
                Some(format!("metadata.annotations[{FLEET_REVISION}]")),
            ),
            (
                with(&child, annotated(FLEET_CONTENT, "2")),
                child.clone(),
                Some(format!("metadata.annotations[{FLEET_CONTENT}]")),
            ),
            (
                with(&child, json!({"metadata": {"labels": {FLEET: null}}})),
                child.clone(),
                Some(format!("metadata.labels[{FLEET}]")),
            ),
            (
                with(&plain, json!({"metadata": {"ownerReferences": owner(Kind::Fleet.name())}})),
                Value::Null,
                Some("metadata.ownerReferences".to_owned()),
            ),
            (
                with(&child, json!({"metadata": {"ownerReferences": null}})),
                child.clone(),
                Some("metadata.ownerReferences".to_owned()),
            ),
            (with(&child, json!({"spec": {"version": "1.23"}})), child.clone(), Some("spec".to_owned())),
        ] {
            assert_eq!(asked(SERVING, &new, &old), expected, "{old} to {new}");
        }
        let odd = json!({"metadata": {"annotations": "x", "labels": [], "ownerReferences": 7}});
        assert_eq!(asked(SERVING, &odd, &odd), None);
    }
}
