//! What the roles of an installation grant, which an API server requires of those who create these
//! roles and bindings ([privilege escalation
//! prevention](https://kubernetes.io/docs/reference/access-authn-authz/rbac/)).

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::PolicyRule;
use serde_json::Value;

use super::permissions::Permissions;
use knative_operator_objects::plan::{Phase, Plan};
use knative_operator_objects::{ObjectId, text};

/// API group of roles.
pub const GROUP: &str = "rbac.authorization.k8s.io";

/// The rules of a role can't be read.
#[derive(Debug, thiserror::Error)]
#[error("{0}: cannot read its rules: {1}")]
pub struct UnreadableRole(ObjectId, serde_json::Error);

/// Kind, namespace and name of a role.
type RoleKey = (String, String, String);

/// What the permissions in the roles of an installation don't tell.
#[derive(Clone, Debug, Default)]
pub struct Grants {
    /// ClusterRoles that aggregate others.
    pub aggregated: BTreeSet<String>,
    /// Roles that grant `*`.
    pub wildcards: BTreeSet<String>,
    defined: BTreeSet<RoleKey>,
    bound: BTreeSet<RoleKey>,
}

impl Grants {
    /// Adds what the roles of `plan` grant to `permissions`.
    pub fn add(&mut self, plan: &Plan, permissions: &mut Permissions) -> Result<(), UnreadableRole> {
        for item in plan.phase(Phase::Access) {
            let object = plan.object_of(item);
            let (namespace, name) = (item.id.namespace.clone(), item.id.name.clone());
            if item.is_binding() {
                let kind = text(&object, "/roleRef/kind").to_owned();
                let namespace = if kind == "Role" { namespace } else { String::new() };
                self.bound.insert((kind, namespace, text(&object, "/roleRef/name").to_owned()));
                continue;
            }
            let rules = rules(&object).map_err(|error| UnreadableRole(item.id.clone(), error))?;
            if rules.iter().any(has_wildcard) {
                self.wildcards.insert(name.clone());
            }
            rules.iter().for_each(|rule| permissions.add_rule(rule));
            if is_aggregated(&object) {
                self.aggregated.insert(name.clone());
            }
            self.defined.insert((item.id.kind.clone(), namespace, name));
        }
        Ok(())
    }

    /// Roles that are bound and not part of the installation, so that their rules are unknown: kind
    /// and name.
    pub fn foreign(&self) -> BTreeSet<(&str, &str)> {
        self.bound.difference(&self.defined).map(|(kind, _, name)| (kind.as_str(), name.as_str())).collect()
    }

    /// Adds the verbs that stand in for permissions that nobody but an administrator has, or that
    /// are unknown. Both are limited to the names of the roles.
    pub fn add_exceptions(&self, permissions: &mut Permissions) {
        // A ClusterRole that aggregates others may have any permission, so that its author needs
        // all of them, or `escalate`.
        for name in &self.aggregated {
            permissions.add_named(GROUP, "clusterroles", name, &["escalate"]);
        }
        for (kind, name) in self.foreign() {
            let resource = if kind == "Role" { "roles" } else { "clusterroles" };
            permissions.add_named(GROUP, resource, name, &["bind"]);
        }
    }
}

/// The rules of the role `object`.
fn rules(object: &Value) -> Result<Vec<PolicyRule>, serde_json::Error> {
    let rules = object.get("rules").filter(|rules| !rules.is_null());
    rules.map_or_else(|| Ok(Vec::new()), |rules| serde_json::from_value(rules.clone()))
}

/// Whether the control plane writes the rules of the role `object`.
fn is_aggregated(object: &Value) -> bool {
    let selectors = object.pointer("/aggregationRule/clusterRoleSelectors").and_then(Value::as_array);
    selectors.is_some_and(|selectors| !selectors.is_empty())
}

/// Whether `rule` permits more than it lists.
fn has_wildcard(rule: &PolicyRule) -> bool {
    let words = rule.verbs.iter().chain(rule.api_groups.iter().flatten()).chain(rule.resources.iter().flatten());
    words.chain(rule.non_resource_urls.iter().flatten()).any(|word| word.contains('*'))
}
