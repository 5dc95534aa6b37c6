//! New KnativeFleetApprovals: records who approves, and binds the approval to the fleet as it is
//! stored now, so that what the user saw is what is approved. Pure.

use json_patch::Patch;
use knative_operator_rules::authorization::author;
use knative_operator_rules::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::KnativeFleet;
use knative_operator_shared::fleet::content::{RevisionData, digest};
use knative_operator_shared::fleet::stage::REMOVAL;
use serde_json::{Value, json};

use crate::fleet::is_approval;
use crate::request::Request;

/// An approval is for the stored fleet.
pub static CURRENT: Rule = Rule {
    id: "fleet-approval",
    severity: Severity::Error,
    requirement: "A KnativeFleetApproval is for an existing KnativeFleet, its current revision, and what it rolls out now.",
    valid: Example::fleet("{}"),
    invalid: Example::fleet("{}"),
};

/// The fleet can be read.
pub static UNAVAILABLE: Rule = Rule {
    id: "fleet-approval-unknown",
    severity: Severity::Error,
    requirement: "The API server returns the fleet of a KnativeFleetApproval.",
    valid: Example::fleet("{}"),
    invalid: Example::fleet("{}"),
};

/// Name of the fleet that a new approval in `request` is for. Without one, the API server refuses
/// the approval.
pub fn fleet_of(request: &Request) -> Option<&str> {
    let is_new = is_approval(request) && request.operation == "CREATE";
    request.object["spec"]["fleet"].as_str().filter(|name| is_new && !name.is_empty())
}

/// The patch that binds the approval in `request` to `fleet` and its user.
///
/// # Errors
///
/// If the approval is for something else than what `fleet` rolls out.
pub fn bind(request: &Request, fleet: &KnativeFleet) -> Result<Patch, Violation> {
    let (spec, meta) = (&request.object["spec"], &fleet.metadata);
    let (name, uid) = (meta.name.as_deref().unwrap_or_default(), meta.uid.as_deref().unwrap_or_default());
    let (digest, revision) = (digest(&fleet.spec), spec["revision"].as_str().unwrap_or_default());
    let fix = "read the fleet again, then approve its status.updateRevision";
    // The name of a removal is that of its clusters, which only the operator knows.
    let status = fleet.status.clone().unwrap_or_default();
    // With the versions that the operator resolved for this spec.
    let is_resolved =
        status.update_revision.as_deref() == Some(revision) && status.rollout_digest.as_deref() == Some(&digest);
    if spec["stage"] != REMOVAL && !is_resolved && !RevisionData::of(&fleet.spec).has_name(revision, name, uid) {
        let message = format!("\"{revision}\" is not the revision of the spec of KnativeFleet {name}");
        return Err(CURRENT.at("spec.revision", message, fix));
    }
    for (field, current) in [("fleetUID", uid), ("digest", digest.as_str())] {
        let given = &spec[field];
        if !given.is_null() && *given != *current {
            let message = format!("{given} is not that of KnativeFleet {name}, which is \"{current}\"");
            return Err(CURRENT.at(format!("spec.{field}"), message, fix));
        }
    }
    let mut bound = request.object.clone();
    for (field, value) in [
        ("username", json!(request.user_info.username)),
        ("fleetUID", json!(uid)),
        ("fleetGeneration", json!(meta.generation.unwrap_or_default())),
        ("digest", Value::from(digest)),
    ] {
        bound["spec"][field] = value;
    }
    // With the groups, which `audit` asks about.
    json_patch::merge(&mut bound, &author::annotation(&request.user_info));
    Ok(json_patch::diff(&request.object, &bound))
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::label::{FLEET_VERSION, GROUP};

    use super::*;
    use crate::request::Kind;
    use knative_operator_rules::authorization::author::User;

    fn request(kind: &str, operation: &str, spec: &Value) -> Request {
        Request {
            kind: Kind { group: GROUP.into(), version: FLEET_VERSION.into(), kind: kind.into() },
            operation: operation.into(),
            user_info: User { username: "jane".into(), ..User::default() },
            object: json!({"metadata": {"name": "a"}, "spec": spec}),
            ..Request::default()
        }
    }

    fn fleet(version: &str) -> KnativeFleet {
        serde_json::from_value(json!({"metadata": {"name": "prod", "namespace": "n", "uid": "1", "generation": 4},
            "spec": {"placement": {"clusterSelector": {}}, "serving": {"spec": {"version": version}}}}))
        .unwrap()
    }

    /// The approval of `patch` as it is stored, or why it is refused.
    fn bound(patch: &Value) -> Result<Value, Violation> {
        let revision = RevisionData::of(&fleet("1.22").spec).name("prod", "1");
        let mut spec = json!({"fleet": "prod", "revision": revision, "stage": "rest"});
        json_patch::merge(&mut spec, patch);
        let request = request("KnativeFleetApproval", "CREATE", &spec);
        let patch = bind(&request, &fleet("1.22"))?;
        let mut patched = request.object;
        json_patch::patch(&mut patched, &patch).unwrap();
        Ok(patched["spec"].clone())
    }

    #[test]
    fn approval_has_its_user() {
        for given in [json!({}), json!({"username": "root"}), json!({"username": null})] {
            assert_eq!(bound(&given).unwrap()["username"], "jane");
        }
    }

    #[test]
    fn approval_is_bound_to_the_stored_fleet() {
        let current = digest(&fleet("1.22").spec);
        for given in [json!({}), json!({"fleetUID": "1", "digest": current}), json!({"fleetGeneration": 99})] {
            let spec = bound(&given).unwrap();
            assert_eq!((&spec["fleetUID"], &spec["fleetGeneration"]), (&json!("1"), &json!(4)));
            assert_eq!(spec["digest"], current);
        }
        let earlier = RevisionData::of(&fleet("1.22").spec).earlier_name("prod");
        assert!(bound(&json!({"revision": earlier})).is_ok(), "stored by an earlier version");
        assert!(bound(&json!({"stage": REMOVAL, "revision": "0123"})).is_ok());
    }

    #[test]
    fn approval_of_something_else_is_refused() {
        let other = RevisionData::of(&fleet("1.23").spec).name("prod", "1");
        let former = RevisionData::of(&fleet("1.22").spec).name("prod", "0");
        for (given, expected) in [
            (json!({"revision": other}), "spec.revision: \"prod-"),
            (json!({"revision": former}), "is not the revision of the spec of KnativeFleet prod"),
            (json!({"revision": null}), "spec.revision: \"\""),
            (json!({"fleetUID": "0"}), "spec.fleetUID: \"0\" is not that of KnativeFleet prod, which is \"1\""),
            (json!({"digest": digest(&fleet("1.23").spec)}), "spec.digest: \"sha256:"),
            (json!({"digest": 7}), "spec.digest: 7 is not that of"),
            (json!({"stage": REMOVAL, "digest": "sha256:0"}), "spec.digest: \"sha256:0\""),
        ] {
            let refused = bound(&given).unwrap_err().to_string();
            assert!(refused.contains(expected), "{given}: {refused}");
        }
    }

    #[test]
    fn only_new_approvals_are_bound() {
        let spec = json!({"fleet": "prod"});
        let found =
            |kind: &str, operation: &str, spec: &Value| fleet_of(&request(kind, operation, spec)).map(str::to_owned);
        assert_eq!(found("KnativeFleetApproval", "CREATE", &spec).as_deref(), Some("prod"));
        assert_eq!(found("KnativeFleetApproval", "UPDATE", &spec), None);
        assert_eq!(found("KnativeFleet", "CREATE", &spec), None);
        for unreadable in [json!({}), json!("x"), json!({"fleet": 7}), json!({"fleet": ""})] {
            assert_eq!(found("KnativeFleetApproval", "CREATE", &unreadable), None, "{unreadable}");
        }
    }
}
