//! Whether the author of a resource may use its cluster at the time when the resource begins to
//! install, and the author of a fleet a cluster that joins it: it may have been stored before
//! permissions were enforced, or waited for its cluster while an administrator took the permission
//! away.

use knative_operator_rules::authorization::author::User;
use knative_operator_rules::authorization::permission::Permission;
use knative_operator_runtime::{access, error_text};
use knative_operator_shared::api::{Knative, KnativeFleet};
use knative_operator_shared::label::{AUTHOR, PERMITTED_ON, SERVICE_ACCOUNT, SHARED_TARGET};
use kube::{Client, Resource};

use super::conditions::{NOT_PERMITTED, OCCUPIED};

/// The API server can't be asked about an author.
#[derive(Debug, thiserror::Error)]
#[error("cannot check the permission of its author: {}", error_text(.0))]
pub struct Unasked(kube::Error);

/// Asks about authors.
#[derive(Clone)]
pub struct Authors {
    hub: Client,
    /// The operator itself, which creates the resources of fleets. The webhook asked about the
    /// fleet.
    operator: String,
}

impl Authors {
    /// Asks `hub`, with the operator in `namespace`.
    pub fn new(hub: Client, namespace: &str) -> Self {
        Self { hub, operator: operator(namespace) }
    }

    /// Whether `author` has `permission`, as far as the operator asks about them.
    pub async fn is_allowed(&self, author: &User, permission: &Permission) -> Result<bool, Unasked> {
        if author.username == self.operator {
            return Ok(true);
        }
        access::is_allowed(&self.hub, author.question(permission)).await.map_err(Unasked)
    }

    /// Why `resource` may not begin to install, for people; `None` if it may.
    pub async fn objection(&self, resource: &Knative) -> Result<Option<String>, Unasked> {
        let permission = Permission::to_target(resource.common().cluster_profile_ref.as_ref());
        let Some(author) = resource.annotation(AUTHOR).and_then(User::decode) else {
            // Stored before a webhook recorded authors: what `audit` lists. One that waited for the
            // cluster of another resource must not get it unasked.
            if !has_waited(resource) {
                return Ok(None);
            }
            return Ok(Some(message(resource, &permission, "it is not known who created the resource")));
        };
        // While no webhook answers, anybody can write the annotation.
        let is_operator = author.username == self.operator;
        let is_allowed =
            if is_operator { is_of_fleet(resource) } else { self.is_allowed(&author, &permission).await? };
        let who = format!(
            "user \"{}\", who created the resource, is not allowed to {}",
            author.username,
            permission.action()
        );
        Ok((!is_allowed).then(|| message(resource, &permission, &who)))
    }
}

/// Whether a fleet controls `resource`.
fn is_of_fleet(resource: &Knative) -> bool {
    let mut owners = resource.meta().owner_references.iter().flatten();
    owners.any(|owner| owner.kind == KnativeFleet::kind(&()) && owner.controller == Some(true))
}

/// Whether `resource` waited for another one to give up its cluster, or wanted to.
fn has_waited(resource: &Knative) -> bool {
    let mut conditions = resource.status().into_iter().flat_map(|status| &status.conditions);
    resource.annotation(SHARED_TARGET).is_some()
        || conditions.any(|condition| matches!(condition.reason.as_deref(), Some(OCCUPIED | NOT_PERMITTED)))
}

/// Whether the author of `resource` was permitted to use the cluster with this `uid` before, as its
/// status says, which only the operator writes.
pub fn was_permitted(resource: &Knative, uid: Option<&str>) -> bool {
    let permitted = resource.status().and_then(|status| status.annotations.get(PERMITTED_ON));
    permitted.is_some_and(|permitted| Some(permitted.as_str()) == uid)
}

/// The user that the operator in `namespace` is.
fn operator(namespace: &str) -> String {
    format!("system:serviceaccount:{namespace}:{SERVICE_ACCOUNT}")
}

/// What is wrong, and what to do.
fn message(resource: &Knative, permission: &Permission, what: &str) -> String {
    let (plural, namespace, name) = (resource.component().plural(), resource.namespace(), resource.name());
    format!(
        "{what}; bind ClusterRole {} by a {}, or answer for the resource as a user with that permission: \
         kubectl annotate --overwrite {plural} {name} -n {namespace} {AUTHOR}=me",
        permission.role(),
        permission.binding(),
    )
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::KnativeServing;

    use super::*;

    #[test]
    fn only_waiting_resources_need_a_known_author() {
        let of = |patch: serde_json::Value| {
            let mut object = serde_json::json!({"metadata": {"name": "a"}, "spec": {}});
            json_patch::merge(&mut object, &patch);
            Knative::Serving(serde_json::from_value(object).unwrap())
        };
        let condition = |reason: &str| {
            let condition = serde_json::json!({"type": "InstallSucceeded", "status": "False", "reason": reason});
            of(serde_json::json!({"status": {"conditions": [condition]}}))
        };
        assert!(has_waited(&condition(OCCUPIED)) && !has_waited(&condition("Error")));
        // The refusal itself replaces the reason.
        assert!(has_waited(&condition(NOT_PERMITTED)));
        let permitted = of(serde_json::json!({"status": {"annotations": {PERMITTED_ON: "1"}}}));
        assert!(was_permitted(&permitted, Some("1")) && !was_permitted(&permitted, Some("2")));
        assert!(!was_permitted(&permitted, None) && !was_permitted(&of(serde_json::json!({})), None));
        assert!(has_waited(&of(serde_json::json!({"metadata": {"annotations": {SHARED_TARGET: "true"}}}))));
        assert!(!has_waited(&of(serde_json::json!({}))));
    }

    #[test]
    fn message_names_the_role_and_the_command() {
        let mut serving = KnativeServing::default();
        (serving.metadata.name, serving.metadata.namespace) = (Some("a".into()), Some("team".into()));
        let text = message(&Knative::Serving(serving), &Permission::to_use("fleet", "east"), "it is not known");
        assert_eq!(
            text,
            "it is not known; bind ClusterRole knative-operator-user by a RoleBinding in namespace \"fleet\", or answer for the \
             resource as a user with that permission: kubectl annotate --overwrite knativeservings a -n team \
             operator.knative.dev/author=me"
        );
        assert_eq!(operator("ns"), "system:serviceaccount:ns:knative-operator");
    }
}
