//! What an account lacks for an installation.

use k8s_openapi::api::rbac::v1::PolicyRule;

use super::grants::{GROUP, Grants, UnreadableRole};
use super::permissions::Permissions;
use super::requests;
use super::role::Covered;

/// What an account with the permissions `given` lacks to install, repair, upgrade and remove all of
/// `covered`.
pub fn missing(covered: &[Covered], given: &[PolicyRule]) -> Result<Vec<PolicyRule>, UnreadableRole> {
    let (mut needed, mut granted, mut grants) = (Permissions::default(), Permissions::default(), Grants::default());
    for Covered { resource, plan, .. } in covered {
        requests::add(&mut needed, resource, plan);
        grants.add(plan, &mut granted)?;
    }
    grants.add_exceptions(&mut granted);
    let (mut own, mut exempted) = (Permissions::default(), Permissions::default());
    given.iter().for_each(|rule| own.add_rule(rule));
    for kind in ["clusterroles", "roles"] {
        exempted.add(GROUP, kind, &["bind", "escalate"]);
    }
    // Who has these verbs can create roles with any permission.
    if !exempted.without(&own).is_empty() {
        needed.extend(granted);
    }
    Ok(needed.without(&own).rules())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use knative_operator_objects::plan::{Plan, Rendered};
    use knative_operator_objects::{CompactObject, Owner};
    use knative_operator_rules as rules;
    use knative_operator_shared::api::Component;
    use serde_json::{Value, json};

    use super::*;

    fn rule(group: &str, resource: &str, verbs: &[&str]) -> PolicyRule {
        let rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
        serde_json::from_value(rule).unwrap()
    }

    /// A resource with a role that reads Secrets, and a ConfigMap.
    fn covered() -> Covered {
        let resource = json!({"metadata": {"name": "ks", "namespace": "n"}, "spec": {"clusterProfileRef": {"name": "c", "namespace": "d"}}});
        let resource = rules::parse(Component::Serving, &resource).unwrap();
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "r"},
            "rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}, {"nonResourceURLs": ["/a/b"], "verbs": ["get"]}]});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "n"}});
        let rendered = Rendered::new([role, map].iter().map(CompactObject::new).collect());
        let plan = Plan::new(Arc::new(rendered), &Owner::of(&resource, ""));
        Covered { resource, version: "1.0.0".parse().unwrap(), plan }
    }

    fn lacking(given: &[PolicyRule]) -> Value {
        json!(missing(&[covered()], given).unwrap())
    }

    #[test]
    fn administrator_lacks_nothing() {
        assert_eq!(lacking(&[rule("*", "*", &["*"])]), json!([]));
        let reads = lacking(&[rule("*", "*", &["get", "list", "watch"])]).to_string();
        assert!(reads.contains("create") && reads.contains("/a/b"), "{reads}");
    }

    #[test]
    fn each_missing_permission_is_listed() {
        let all = missing(&[covered()], &[]).unwrap();
        // All but one.
        for left_out in 0..all.len() {
            let mut given = all.clone();
            let expected = given.remove(left_out);
            assert_eq!(missing(&[covered()], &given).unwrap(), [expected]);
        }
        assert_eq!(lacking(&all), json!([]));
    }

    #[test]
    fn who_may_escalate_needs_not_what_the_roles_grant() {
        let secrets = |given: &[PolicyRule]| lacking(given).to_string().contains("secrets");
        let escalates = ["clusterroles", "roles"].map(|kind| rule(GROUP, kind, &["bind", "escalate"]));
        assert!(secrets(&[]) && secrets(&escalates[..1]) && !secrets(&escalates));
    }
}
