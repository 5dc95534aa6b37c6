//! What the operator does itself on a spoke: the requests of `apply` and `cluster`, as permissions.

use knative_operator_shared::api::Knative;
use knative_operator_shared::name;
use kube::core::ApiResource;

use super::permissions::Permissions;
use knative_operator_apply::{contents, pods, remove, users};
use knative_operator_cluster_access::identity;
use knative_operator_objects::plan::{CRD, Plan};

/// API groups of kinds that releases use and don't define: cert-manager, trust-manager, Istio and
/// Contour. Their resource names have the usual form.
const KNOWN_GROUPS: [&str; 5] =
    ["cert-manager.io", "networking.istio.io", "projectcontour.io", "security.istio.io", "trust.cert-manager.io"];

/// Adds what the operator does for `resource`, whose objects are `plan`. Returns warnings about
/// kinds whose resource name is unknown.
pub fn add(permissions: &mut Permissions, resource: &Knative, plan: &Plan) -> Vec<String> {
    let namespace = resource.target_namespace();
    let anchor = name::anchor(resource.component(), resource.name());
    permissions.add_named("", "namespaces", identity::NAMESPACE, &["get"]);
    // A request that creates has no name, apart from server-side apply.
    permissions.add("", "namespaces", &["create"]);
    permissions.add_named("", "namespaces", namespace, &["get", "list", "watch", "delete"]);
    // The anchor, and a look at those of other installations, in all namespaces.
    permissions.add("", "configmaps", &["create", "list", "watch"]);
    permissions.add_named("", "configmaps", &anchor, &["get", "patch", "delete"]);
    // The anchor owns objects and blocks its own deletion: for clusters with the admission plugin
    // OwnerReferencesPermissionEnforcement.
    permissions.add_named("", "configmaps/finalizers", &anchor, &["update"]);
    for (group, resource) in contents::LISTED {
        permissions.add(group, resource, &["list"]);
    }
    // Why a workload is not available. The names of Pods are generated.
    for (resource, verb) in pods::PERMISSIONS {
        permissions.add("", resource, &[verb]);
    }
    let mut warnings = Vec::new();
    for item in plan.items() {
        let group = item.id.group.as_str();
        let plural = if let Some(kind) = plan.kinds().get(&item.gvk) {
            kind.resource.plural
        } else {
            let (kind, plural) = (&item.id.kind, ApiResource::from_gvk(&item.gvk).plural);
            if !KNOWN_GROUPS.contains(&group) {
                warnings.push(format!(
                    "nothing defines the kind {kind} of {group}; the role has its usual resource name {plural}"
                ));
            }
            plural
        };
        permissions.add(group, &plural, &["list", "watch"]);
        // Server-side apply needs `patch`, and `create` for an object that does not exist yet. The
        // API server checks both with the name.
        permissions.add_named(group, &plural, &item.id.name, &["get", "create", "patch"]);
        if !remove::is_retained(&item.id) {
            permissions.add_named(group, &plural, &item.id.name, &["delete"]);
        }
        if let Some((plural, group)) = users::of_definition(&item.id) {
            permissions.add(group, plural, &["list"]);
        }
        if item.phase().is_custom() {
            // Read while the kind is not served yet.
            permissions.add_named(CRD.0, "customresourcedefinitions", &format!("{plural}.{group}"), &["get"]);
        }
    }
    warnings
}

/// Adds what the gates of fleets need: requests to Services through the API server, and Jobs.
pub fn add_gates(permissions: &mut Permissions) {
    permissions.add("", "services/proxy", &["get", "create"]);
    permissions.add("batch", "jobs", &["get", "create"]);
    // The last words of a Job.
    permissions.add("", "pods", &["list"]);
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use knative_operator_rules as rules;
    use knative_operator_shared::api::Component;
    use serde_json::{Value, json};

    use super::*;
    use knative_operator_objects::plan::Rendered;
    use knative_operator_objects::{CompactObject, Owner};

    #[test]
    fn names_are_given_where_requests_have_them() {
        let resource = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
            "metadata": {"name": "ks", "namespace": "fleet"}, "spec": {"clusterProfileRef": {"name": "a", "namespace": "b"}}});
        let resource = rules::parse(Component::Serving, &resource).unwrap();
        let object = |api: &str, kind: &str, name: &str| {
            CompactObject::new(&json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}}))
        };
        let rendered = Rendered::new(vec![
            object("apiextensions.k8s.io/v1", "CustomResourceDefinition", "xs.g.io"),
            object("policy/v1", "PodDisruptionBudget", "a"),
            object("cert-manager.io/v1", "Issuer", "b"),
            object("example.com/v1", "Box", "c"),
        ]);
        let plan = Plan::new(Arc::new(rendered), &Owner::of(&resource, ""));
        let mut permissions = Permissions::default();
        let warnings = add(&mut permissions, &resource, &plan);
        let warning = "nothing defines the kind Box of example.com; the role has its usual resource name boxes";
        assert_eq!(warnings, [warning]);
        let rules = json!(permissions.rules());
        let has = |rule: &Value| rules.as_array().unwrap().contains(rule);
        for (group, resource, names, verbs) in [
            ("policy", "poddisruptionbudgets", &["a"][..], &["create", "delete", "get", "patch"][..]),
            ("policy", "poddisruptionbudgets", &[], &["list", "watch"]),
            ("cert-manager.io", "issuers", &["b"], &["create", "delete", "get", "patch"]),
            ("example.com", "boxes", &["c"], &["create", "delete", "get", "patch"]),
            ("apiextensions.k8s.io", "customresourcedefinitions", &["xs.g.io"], &["create", "get", "patch"]),
            (
                "apiextensions.k8s.io",
                "customresourcedefinitions",
                &["boxes.example.com", "issuers.cert-manager.io"],
                &["get"],
            ),
            ("", "namespaces", &[], &["create"]),
            ("", "namespaces", &["knative-serving"], &["delete", "get", "list", "watch"]),
            ("", "namespaces", &["kube-system"], &["get"]),
            ("", "configmaps", &[], &["create", "list", "watch"]),
            ("", "configmaps", &["knativeserving-ks-root-owner"], &["delete", "get", "patch"]),
            ("", "pods/log", &[], &["get"]),
        ] {
            let mut rule = json!({"apiGroups": [group], "resources": [resource], "verbs": verbs});
            if !names.is_empty() {
                rule["resourceNames"] = json!(names);
            }
            assert!(has(&rule), "{rule} is not in {rules:#}");
        }
    }
}
