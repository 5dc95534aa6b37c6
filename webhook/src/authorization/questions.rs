//! The questions about a request: what it writes, and which permissions that needs. Pure.

use knative_operator_rules::authorization::questions::Question;
use knative_operator_rules::authorization::write::Write;
use knative_operator_rules::authorization::{approvals, questions};
use knative_operator_shared::api::Kind;

use crate::admission::component;
use crate::fleet;
use crate::request::Request;

/// The questions about `request`.
pub fn about(request: &Request) -> Vec<Question> {
    if request.operation == "DELETE" {
        let of = |kind| approvals::about_deletion(kind, &request.namespace, &request.old_object);
        return kind(request).and_then(of).into_iter().collect();
    }
    let Some(write) = write(request) else { return Vec::new() };
    let mut all = questions::about(&write);
    all.extend(approvals::about(&write));
    all
}

/// Whether `request` creates a resource for the hub itself.
pub fn is_new_and_local(request: &Request) -> bool {
    write(request).is_some_and(|write| write.is_new_and_local())
}

/// What `request` writes, if users need permissions for it.
pub fn write(request: &Request) -> Option<Write<'_>> {
    let kind = kind(request)?;
    let old = match request.operation.as_str() {
        "CREATE" => None,
        "UPDATE" => Some(&request.old_object),
        _ => return None,
    };
    Some(Write { kind, namespace: &request.namespace, new: &request.object, old })
}

/// Kind of the object, if users need permissions for it.
fn kind(request: &Request) -> Option<Kind> {
    component(request).map(Kind::Component).or_else(|| fleet::is_fleet(request).then_some(Kind::Fleet))
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::label::{FLEET_REVISION, FLEET_VERSION, GROUP, VERSION};
    use serde_json::{Value, json};

    use super::*;
    use crate::request;

    fn request(kind: &str, operation: &str) -> Request {
        let version = if kind == fleet::FLEET { FLEET_VERSION } else { VERSION };
        let object = json!({"metadata": {"annotations": {FLEET_REVISION: "x"}},
            "spec": {"clusterProfileRef": {"name": "a", "namespace": "f"}, "patches": [{}]}});
        let old = json!({"spec": {}});
        Request {
            kind: request::Kind { group: GROUP.into(), version: version.into(), kind: kind.into() },
            operation: operation.into(),
            namespace: "tenant".into(),
            object: if operation == "DELETE" { Value::Null } else { object },
            old_object: if operation == "CREATE" { Value::Null } else { old },
            ..Request::default()
        }
    }

    #[test]
    fn creations_and_updates_are_asked_about() {
        let asked = |request: &Request| -> Vec<String> {
            about(request).into_iter().map(|question| question.permission.action()).collect()
        };
        let all = [
            "use ClusterProfile \"f/a\"",
            "customize knativeservings in namespace \"tenant\"",
            "approve rollouts in namespace \"tenant\"",
        ];
        for (kind, operation, expected) in [
            ("KnativeServing", "CREATE", &all[..]),
            ("KnativeServing", "UPDATE", &all[..]),
            ("KnativeServing", "DELETE", &all[..0]),
            ("KnativeServing", "CONNECT", &all[..0]),
            ("ConfigMap", "CREATE", &all[..0]),
            (fleet::FLEET, "DELETE", &all[..0]),
        ] {
            assert_eq!(asked(&request(kind, operation)), expected, "{operation} of {kind}");
        }
        let mut gated = request(fleet::FLEET, "DELETE");
        gated.old_object = json!({"spec": {"rollout": {"stages": [{"name": "a", "approval": "Required"}]}}});
        assert_eq!(asked(&gated), all[2..]);
        let mut status = request("KnativeServing", "CREATE");
        status.sub_resource = "status".into();
        assert!(asked(&status).is_empty());
    }

    #[test]
    fn only_creations_are_new_on_the_hub() {
        let mut local = request("KnativeServing", "CREATE");
        assert!(!is_new_and_local(&local));
        local.object = json!({"spec": {}});
        assert!(is_new_and_local(&local));
        assert!(!is_new_and_local(&Request { operation: "UPDATE".into(), ..local.clone() }));
        assert!(!is_new_and_local(&Request { sub_resource: "status".into(), ..local }));
    }
}
