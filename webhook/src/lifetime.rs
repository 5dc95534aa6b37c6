//! What would be uninstalled against the user's will: the clusters of a fleet that is deleted, a
//! component that a fleet drops, installations that a deletion in the foreground doesn't leave, and
//! resources of a fleet that doesn't exist, which the garbage collector deletes. Pure.

use knative_operator_rules::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::Component;
use knative_operator_shared::api::fleet::Removal;
use knative_operator_shared::fleet::deletion;
use knative_operator_shared::label::{CONFIRM_REMOVAL, ON_DELETE, ORPHAN};
use kube::core::ObjectMeta;
use serde::Deserialize;
use serde_json::Value;

use crate::admission::component;
use crate::fleet::{FLEET, is_fleet};
use crate::request::Request;

/// A deletion that leaves installations is not in the foreground.
static FOREGROUND: Rule = Rule {
    id: "foreground-deletion",
    severity: Severity::Error,
    requirement: "The deletion of what leaves its installation is not in the foreground, in which the garbage collector uninstalls it first.",
    valid: Example::serving("{}"),
    invalid: Example::serving("{}"),
};

/// The owner of a resource of a fleet exists.
static OWNER: Rule = Rule {
    id: "fleet-owner",
    severity: Severity::Error,
    requirement: "A KnativeFleet in the owner references exists, or the garbage collector deletes the resource, which uninstalls Knative.",
    valid: Example::serving("{}"),
    invalid: Example::serving("{}"),
};

/// Accounts of the controllers that delete what belongs to a namespace or an owner.
pub const CONTROLLERS: [&str; 3] = [
    // Both, where controllers have no accounts of their own.
    "system:kube-controller-manager",
    "system:serviceaccount:kube-system:generic-garbage-collector",
    "system:serviceaccount:kube-system:namespace-controller",
];

/// The deletion of a fleet is confirmed.
static CONFIRMED: Rule = Rule {
    id: "fleet-deletion",
    severity: Severity::Error,
    requirement: "The deletion of a fleet, or of the template of a component, that uninstalls from more clusters than `spec.removal.maxAtOnce` is confirmed for their number.",
    valid: Example::serving("{}"),
    invalid: Example::serving("{}"),
};

/// The violation if `request` deletes a fleet, which uninstalls from many clusters, and nobody
/// confirmed that. On how many it is installed is in its status. Controllers would try again and
/// again, unseen: the operator keeps what they delete, and says so.
pub fn unconfirmed(request: &Request) -> Option<Violation> {
    let is_controller = CONTROLLERS.contains(&request.user_info.username.as_str());
    if request.operation != "DELETE" || !is_fleet(request) || is_controller {
        return None;
    }
    if request.options.propagation_policy == "Orphan" {
        // Resources that are being deleted would forget their fleet, and be uninstalled.
        let is_late = !request.old_object["metadata"]["deletionTimestamp"].is_null();
        let message = "is being deleted already, so --cascade=orphan comes too late";
        let fix = "to keep the installations: set spec.removal.policy to Orphan";
        return is_late.then(|| CONFIRMED.at("metadata.deletionTimestamp", message, fix));
    }
    let old = &request.old_object;
    let meta = ObjectMeta::deserialize(&old["metadata"]).ok()?;
    // What can't be read is left as it is by the operator.
    let removal = Removal::deserialize(&old["spec"]["removal"]).unwrap_or_default();
    let (message, fix) = deletion::unconfirmed(&meta, &removal, deletion::installed(&old["status"]))?;
    Some(CONFIRMED.at(format!("metadata.annotations[{CONFIRM_REMOVAL}]"), message, fix))
}

/// The violations if `request` takes the template of a component out of a fleet, which uninstalls
/// it from many clusters, and nobody confirmed that.
pub fn unconfirmed_drops(request: &Request) -> Vec<Violation> {
    let (new, old) = (&request.object, &request.old_object);
    if request.operation != "UPDATE" || !is_fleet(request) || !new["metadata"]["deletionTimestamp"].is_null() {
        return Vec::new();
    }
    let Ok(meta) = ObjectMeta::deserialize(&new["metadata"]) else { return Vec::new() };
    // The same change may have another limit.
    let removal = Removal::deserialize(&old["spec"]["removal"]).unwrap_or_default();
    let before = old["metadata"]["annotations"][CONFIRM_REMOVAL].as_str();
    let dropped = Component::ALL
        .map(|component| (component, deletion::field(component)))
        .into_iter()
        .filter(|(_, field)| !old["spec"][field].is_null() && new["spec"][field].is_null());
    let unconfirmed = dropped.filter_map(|(component, field)| {
        let clusters = deletion::installed(&old["status"]);
        let (message, fix) = deletion::unconfirmed_drop(&meta, (&removal, before), component, clusters)?;
        Some(CONFIRMED.at(format!("spec.{field}"), message, fix))
    });
    unconfirmed.collect()
}

/// The violation if the deletion in `request` is in the foreground although it is to leave
/// installations: the garbage collector would delete the fleet's resources, or the installed
/// objects, before the operator sees the deletion.
pub fn foreground(request: &Request) -> Option<Violation> {
    let old = &request.old_object;
    let mut finalizers = old["metadata"]["finalizers"].as_array().into_iter().flatten();
    let is_foreground = match request.options.propagation_policy.as_str() {
        "Foreground" => true,
        "" => finalizers.any(|name| name == "foregroundDeletion"),
        _ => false,
    };
    if request.operation != "DELETE" || !is_foreground {
        return None;
    }
    let annotation = format!("metadata.annotations[{ON_DELETE}]");
    let field = if is_fleet(request) && old["spec"]["removal"]["policy"] == "Orphan" {
        "spec.removal.policy"
    } else if component(request).is_some() && old["metadata"]["annotations"][ON_DELETE] == ORPHAN {
        &annotation
    } else {
        return None;
    };
    let message = "leaves the installation, which a deletion in the foreground would uninstall first";
    let fix = "delete it with --cascade=background (Argo CD: sync option PrunePropagationPolicy=background)";
    Some(FOREGROUND.at(field, message, fix))
}

/// Name and uid of the fleets that `request` adds to the owners of a resource.
pub fn new_owners(request: &Request) -> Vec<(&str, &str)> {
    if component(request).is_none() || !["CREATE", "UPDATE"].contains(&request.operation.as_str()) {
        return Vec::new();
    }
    let before = owners(&request.old_object);
    owners(&request.object).into_iter().filter(|owner| !before.contains(owner)).collect()
}

/// Name and uid of the fleets that own `object`.
fn owners(object: &Value) -> Vec<(&str, &str)> {
    let all = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    let fleets = all.filter(|owner| owner["kind"] == FLEET);
    fleets
        .map(|owner| (owner["name"].as_str().unwrap_or_default(), owner["uid"].as_str().unwrap_or_default()))
        .collect()
}

/// The violation of the owner reference to the fleet `name` with `uid`, which doesn't exist.
pub fn missing_owner(name: &str, uid: &str) -> Violation {
    let message = format!(
        "names KnativeFleet {name} with uid \"{uid}\", which does not exist: the garbage collector would delete this resource, and uninstall Knative"
    );
    OWNER.at("metadata.ownerReferences", message, "remove the reference, for example from a restored backup")
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::label::{FLEET_VERSION, GROUP, VERSION};
    use serde_json::json;

    use super::*;
    use crate::request::{Kind, Options};

    fn request(kind: &str, operation: &str, object: Value, old_object: Value, policy: &str) -> Request {
        let version = if kind == FLEET { FLEET_VERSION } else { VERSION };
        Request {
            kind: Kind { group: GROUP.into(), version: version.into(), kind: kind.into() },
            operation: operation.into(),
            options: Options { propagation_policy: policy.into(), ..Options::default() },
            object,
            old_object,
            ..Request::default()
        }
    }

    #[test]
    fn what_leaves_an_installation_is_not_deleted_in_the_foreground() {
        let fleet = |policy: &str| json!({"spec": {"removal": {"policy": policy}}});
        let serving = |value: &str| json!({"metadata": {"annotations": {ON_DELETE: value}}});
        for (kind, old, policy, expected) in [
            (FLEET, fleet("Orphan"), "Foreground", Some("spec.removal.policy")),
            (FLEET, fleet("Orphan"), "Background", None),
            (FLEET, fleet("Orphan"), "", None),
            (FLEET, fleet("Delete"), "Foreground", None),
            (
                "KnativeServing",
                serving("orphan"),
                "Foreground",
                Some("metadata.annotations[operator.knative.dev/on-delete]"),
            ),
            ("KnativeServing", serving("orphan"), "Orphan", None),
            ("KnativeServing", json!({}), "Foreground", None),
            (
                "KnativeServing",
                json!({"metadata": {"annotations": {ON_DELETE: "orphan"}, "finalizers": ["foregroundDeletion"]}}),
                "",
                Some("metadata.annotations[operator.knative.dev/on-delete]"),
            ),
            ("ConfigMap", serving("orphan"), "Foreground", None),
        ] {
            let found = foreground(&request(kind, "DELETE", Value::Null, old.clone(), policy));
            assert_eq!(found.map(|violation| violation.field).as_deref(), expected, "{kind} {old} {policy}");
        }
    }

    #[test]
    fn deletion_of_a_fleet_is_confirmed() {
        let fleet = |removal: &Value, confirmed: &str, clusters: i32| {
            json!({"metadata": {"name": "prod", "annotations": {CONFIRM_REMOVAL: confirmed}}, "spec": {"removal": removal},
                "status": {"installed": clusters, "clusters": 7}})
        };
        let default = || json!({});
        for (kind, old, policy, is_refused) in [
            (FLEET, fleet(&default(), "", 2), "", true),
            (FLEET, fleet(&default(), "", 2), "Background", true),
            (FLEET, fleet(&default(), "2", 2), "Background", false),
            (FLEET, fleet(&default(), "", 2), "Orphan", false),
            (FLEET, fleet(&json!({"policy": "Orphan"}), "", 2), "", false),
            (FLEET, fleet(&json!({"maxAtOnce": "100%"}), "", 2), "", false),
            (FLEET, fleet(&Value::Null, "", 2), "", true),
            (FLEET, fleet(&default(), "", 0), "", false),
            (FLEET, json!({"metadata": {"name": "prod"}, "spec": {}}), "", false),
            (FLEET, json!({"metadata": {"name": "prod"}, "spec": {}, "status": {"clusters": 7}}), "", true),
            ("KnativeServing", fleet(&default(), "", 2), "", false),
        ] {
            let mut request = request(kind, "DELETE", Value::Null, old.clone(), policy);
            assert_eq!(unconfirmed(&request).is_some(), is_refused, "{kind} {old} {policy}");
            if kind == FLEET && policy == "Orphan" {
                request.old_object["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
                assert!(unconfirmed(&request).is_some(), "too late");
            }
            request.user_info.username = "system:serviceaccount:kube-system:namespace-controller".to_owned();
            assert_eq!(unconfirmed(&request), None);
        }
    }

    #[test]
    fn component_that_a_fleet_drops_is_confirmed() {
        let fleet = |components: &[&str], confirmed: &str| {
            let templates: serde_json::Map<_, _> =
                components.iter().map(|component| ((*component).to_owned(), json!({"spec": {}}))).collect();
            json!({"metadata": {"name": "prod", "annotations": {CONFIRM_REMOVAL: confirmed}}, "spec": templates,
                "status": {"installed": 20}})
        };
        let both = || fleet(&["serving", "eventing"], "");
        for (new, old, expected) in [
            (fleet(&["serving"], ""), both(), vec!["spec.eventing"]),
            (fleet(&[], ""), both(), vec!["spec.serving", "spec.eventing"]),
            (fleet(&["serving"], "eventing=20"), both(), vec![]),
            (fleet(&["serving"], "eventing=19"), both(), vec!["spec.eventing"]),
            (fleet(&["serving"], "eventing=20"), fleet(&["serving", "eventing"], "eventing=20"), vec!["spec.eventing"]),
            (both(), fleet(&["serving"], ""), vec![]),
            (fleet(&["serving"], ""), fleet(&["serving"], ""), vec![]),
        ] {
            let found = unconfirmed_drops(&request(FLEET, "UPDATE", new.clone(), old, ""));
            assert_eq!(found.iter().map(|found| found.field.as_str()).collect::<Vec<_>>(), expected, "{new}");
        }
    }

    #[test]
    fn new_references_to_fleets_are_checked() {
        let owned = |kind: &str, uid: &str| json!({"metadata": {"ownerReferences": [{"kind": kind, "name": "prod", "uid": uid}]}});
        for (operation, new, old, expected) in [
            ("CREATE", owned(FLEET, "1"), Value::Null, vec![("prod", "1")]),
            ("UPDATE", owned(FLEET, "2"), owned(FLEET, "1"), vec![("prod", "2")]),
            ("UPDATE", owned(FLEET, "1"), owned(FLEET, "1"), vec![]),
            ("CREATE", owned("ConfigMap", "1"), Value::Null, vec![]),
            ("DELETE", Value::Null, owned(FLEET, "1"), vec![]),
        ] {
            let request = request("KnativeServing", operation, new.clone(), old, "");
            assert_eq!(new_owners(&request), expected, "{operation} {new}");
        }
    }
}
