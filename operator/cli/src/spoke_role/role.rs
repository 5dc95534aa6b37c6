//! The ClusterRole for the credential of a spoke.

use std::collections::BTreeSet;

use knative_operator_shared::api::Knative;
use knative_operator_shared::version::Version;
use serde_json::{Value, json};

use super::grants::{Grants, UnreadableRole};
use super::permissions::Permissions;
use super::requests;
use knative_operator_objects::plan::Plan;

/// Name of the ClusterRole.
const NAME: &str = "knative-operator-spoke";
/// Kubernetes' annotation for people.
const DESCRIPTION: &str = "kubernetes.io/description";

/// What a role covers: a resource in one version.
#[derive(Clone, Debug)]
pub struct Covered {
    /// The resource.
    pub resource: Knative,
    /// The version.
    pub version: Version,
    /// Its objects on the spoke, without Namespaces.
    pub plan: Plan,
}

/// A ClusterRole.
#[derive(Clone, Debug)]
pub struct SpokeRole {
    /// The object.
    pub object: Value,
    /// What may be wrong with it.
    pub warnings: Vec<String>,
}

/// The ClusterRole that suffices to install, repair, upgrade and remove all of `covered`, and with
/// `gates` to measure the gates of fleets.
pub fn cluster_role(covered: &[Covered], gates: bool) -> Result<SpokeRole, UnreadableRole> {
    let (mut permissions, mut grants, mut warnings) = (Permissions::default(), Grants::default(), BTreeSet::new());
    for Covered { resource, plan, .. } in covered {
        warnings.extend(requests::add(&mut permissions, resource, plan));
        grants.add(plan, &mut permissions)?;
    }
    grants.add_exceptions(&mut permissions);
    if gates {
        requests::add_gates(&mut permissions);
    }
    let object = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": NAME, "annotations": {DESCRIPTION: description(covered, &grants)}},
        "rules": permissions.rules(),
    });
    Ok(SpokeRole { object, warnings: warnings.into_iter().collect() })
}

/// What the role is for, and why it has `escalate`, `bind` and `*`.
fn description(covered: &[Covered], grants: &Grants) -> String {
    let all: BTreeSet<String> = covered
        .iter()
        .map(|one| format!("{} {} {}", one.resource.component(), one.resource.name(), one.version))
        .collect();
    let list = |names: &BTreeSet<String>| names.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
    let foreign: BTreeSet<String> = grants.foreign().iter().map(|(kind, name)| format!("{kind} {name}")).collect();
    let purpose = format!(
        "For the Knative operator on a spoke, to install, upgrade and remove {}: what it does itself, and what the roles in these versions \
         grant, because only those who have a permission can create a role with it.",
        list(&all)
    );
    let mut sentences = vec![purpose];
    if !grants.aggregated.is_empty() {
        let names = list(&grants.aggregated);
        sentences.push(format!(
            "escalate: the ClusterRoles {names} aggregate others, which needs this verb or all permissions."
        ));
    }
    if !grants.wildcards.is_empty() {
        sentences.push(format!("*: granted by the roles {}.", list(&grants.wildcards)));
    }
    if !foreign.is_empty() {
        sentences.push(format!("bind: {} are bound, and not part of these versions.", list(&foreign)));
    }
    sentences.join(" ")
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use k8s_openapi::api::rbac::v1::PolicyRule;
    use knative_operator_rules as rules;
    use knative_operator_shared::api::Component;

    use super::*;
    use knative_operator_objects::plan::{Phase, Rendered};
    use knative_operator_objects::{CompactObject, Owner, text};
    use knative_operator_release::Bundle;
    use knative_operator_render::Settings;

    fn resource(component: Component) -> Knative {
        let object = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": component.kind(), "metadata": {"name": "a", "namespace": "b"},
            "spec": {"clusterProfileRef": {"name": "c", "namespace": "d"}}});
        rules::parse(component, &object).unwrap()
    }

    fn covered(resource: Knative, version: &str, rendered: Rendered) -> Covered {
        let plan = Plan::new(Arc::new(rendered), &Owner::of(&resource, "")).without_namespaces();
        Covered { resource, version: version.parse().unwrap(), plan }
    }

    /// `component` in `version` of the project's small release.
    fn released(component: Component, version: &str) -> Covered {
        let bundle = Bundle::open(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/release"));
        let (resource, parsed) = (resource(component), version.parse().unwrap());
        let objects = bundle.objects(&bundle.release(component, &parsed)).unwrap();
        let rendered =
            knative_operator_render::objects(&resource, &parsed, objects.iter(), &Settings::default()).unwrap();
        covered(resource, version, rendered)
    }

    /// The role for these objects of a KnativeServing.
    fn role_of(objects: &[Value]) -> Value {
        let rendered = Rendered::new(objects.iter().map(CompactObject::new).collect());
        cluster_role(&[covered(resource(Component::Serving), "1.0.0", rendered)], false).unwrap().object
    }

    fn role(kind: &str, name: &str, rules: &Value) -> Value {
        json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": kind, "metadata": {"name": name, "namespace": "n"}, "rules": rules})
    }

    fn rules_of(object: &Value) -> Vec<PolicyRule> {
        serde_json::from_value(object["rules"].clone()).unwrap()
    }

    fn with_verb<'r>(rules: &'r [PolicyRule], verb: &str) -> Vec<&'r PolicyRule> {
        rules.iter().filter(|rule| rule.verbs.iter().any(|own| own == verb)).collect()
    }

    #[test]
    fn every_rule_of_every_role_is_covered() {
        let all = [
            released(Component::Serving, "1.0.0"),
            released(Component::Serving, "1.1.0"),
            released(Component::Eventing, "1.1.0"),
        ];
        let printed = cluster_role(&all, false).unwrap();
        assert_eq!(printed.warnings, Vec::<String>::new());
        let (rules, mut permissions) = (rules_of(&printed.object), Permissions::default());
        rules.iter().for_each(|rule| permissions.add_rule(rule));
        assert_eq!(permissions.rules(), rules, "the rules are not the fewest");
        let mut granted = 0;
        for covered in &all {
            for item in covered.plan.phase(Phase::Access).filter(|item| !item.is_binding()) {
                let object = covered.plan.object_of(item);
                for rule in object["rules"].as_array().into_iter().flatten() {
                    permissions.add_rule(&serde_json::from_value(rule.clone()).unwrap());
                    assert_eq!(permissions.rules(), rules, "{}: {rule} is not covered", item.id);
                    granted += 1;
                }
            }
        }
        assert!(granted > 5, "{granted} rules");
    }

    #[test]
    fn escalate_is_limited_to_aggregated_roles() {
        let printed =
            cluster_role(&[released(Component::Serving, "1.1.0"), released(Component::Eventing, "1.1.0")], false);
        let object = printed.unwrap().object;
        let rules = rules_of(&object);
        let escalating = with_verb(&rules, "escalate");
        assert_eq!(escalating.len(), 1, "{rules:#?}");
        assert_eq!(escalating[0].resources.as_deref(), Some(&["clusterroles".to_owned()][..]));
        assert_eq!(
            escalating[0].resource_names.as_deref(),
            Some(&["eventing-admin".to_owned(), "serving-admin".to_owned()][..])
        );
        assert_eq!(with_verb(&rules, "bind"), Vec::<&PolicyRule>::new());
        assert!(!object["rules"].to_string().contains('*'), "{object:#}");
        let description = text(&object, "/metadata/annotations/kubernetes.io~1description");
        assert!(description.contains("KnativeEventing a 1.1.0, KnativeServing a 1.1.0"), "{description}");
        assert!(description.contains("escalate: the ClusterRoles eventing-admin, serving-admin"), "{description}");
        assert!(!description.contains("bind:") && !description.contains("*:"), "{description}");
    }

    #[test]
    fn wildcards_are_those_of_the_release() {
        let admin = json!([{"apiGroups": ["serving.knative.dev"], "resources": ["*"], "verbs": ["*"]}]);
        let view = json!([{"apiGroups": ["serving.knative.dev"], "resources": ["routes"], "verbs": ["get"]}]);
        let object = role_of(&[role("ClusterRole", "admin", &admin), role("ClusterRole", "view", &view)]);
        let printed = object["rules"].as_array().unwrap();
        let with_wildcard: Vec<_> = printed.iter().filter(|rule| rule.to_string().contains('*')).collect();
        assert_eq!(with_wildcard, [&admin[0]]);
        let description = text(&object, "/metadata/annotations/kubernetes.io~1description");
        assert!(description.ends_with(" *: granted by the roles admin."), "{description}");
    }

    #[test]
    fn role_of_others_needs_bind() {
        let binding = |kind: &str, name: &str| {
            let mut binding = role("RoleBinding", &format!("to-{name}"), &Value::Null);
            binding["roleRef"] = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name});
            binding
        };
        let object =
            role_of(&[role("Role", "own", &json!([])), binding("Role", "own"), binding("ClusterRole", "others")]);
        let rules = rules_of(&object);
        let binding = with_verb(&rules, "bind");
        assert_eq!(binding.len(), 1, "{rules:#?}");
        assert_eq!(binding[0].resources.as_deref(), Some(&["clusterroles".to_owned()][..]));
        assert_eq!(binding[0].resource_names.as_deref(), Some(&["others".to_owned()][..]));
        let description = text(&object, "/metadata/annotations/kubernetes.io~1description");
        assert!(description.contains("bind: ClusterRole others "), "{description}");
    }

    #[test]
    fn patched_aggregation_needs_no_escalate() {
        let mut aggregated = role("ClusterRole", "admin", &Value::Null);
        aggregated["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]});
        assert_eq!(with_verb(&rules_of(&role_of(&[aggregated])), "escalate").len(), 1);
        let view = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}]);
        assert_eq!(with_verb(&rules_of(&role_of(&[role("ClusterRole", "admin", &view)])), "escalate").len(), 0);
    }

    #[test]
    fn unreadable_rules_are_an_error() {
        let rendered = Rendered::new(vec![CompactObject::new(&role("ClusterRole", "odd", &json!("none")))]);
        let error = cluster_role(&[covered(resource(Component::Serving), "1.0.0", rendered)], false).unwrap_err();
        assert!(error.to_string().starts_with("ClusterRole n/odd: cannot read its rules: "), "{error}");
    }
}
