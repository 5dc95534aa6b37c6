//! The subjects of RoleBindings and ClusterRoleBindings.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use knative_operator_shared::label::SERVICE_ACCOUNT;
use kube::{Api, Client};

use super::super::list;
use super::subject::Subject;

/// Label of the bindings that Kubernetes has by itself, with its value. Their subjects are
/// components of the cluster, and administrators.
const DEFAULTS: (&str, &str) = ("kubernetes.io/bootstrapping", "rbac-defaults");

/// The subjects that have roles.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Bindings {
    /// In the whole cluster.
    pub cluster: BTreeSet<Subject>,
    /// In a namespace.
    pub namespaced: BTreeMap<String, BTreeSet<Subject>>,
    /// The operator, which needs no permission.
    pub operators: BTreeSet<Subject>,
}

/// The bindings in `namespace` or in all, and those of the whole cluster.
pub async fn list(client: &Client, namespace: Option<&str>) -> Result<Bindings, String> {
    let api: Api<RoleBinding> = match namespace {
        Some(namespace) => Api::namespaced(client.clone(), namespace),
        None => Api::all(client.clone()),
    };
    let roles = list::list(&api, "rolebindings.rbac.authorization.k8s.io", namespace).await?;
    let api: Api<ClusterRoleBinding> = Api::all(client.clone());
    let cluster_roles = list::list(&api, "clusterrolebindings.rbac.authorization.k8s.io", None).await?;
    match (cluster_roles, roles) {
        (Some(cluster_roles), Some(roles)) => Ok(Bindings::of(&cluster_roles, &roles)),
        _ => Err("the API server has no role bindings (RBAC); name a user with --as".to_owned()),
    }
}

impl Bindings {
    /// The subjects of `cluster_roles` and `roles`, without the operator and the cluster itself.
    fn of(cluster_roles: &[ClusterRoleBinding], roles: &[RoleBinding]) -> Self {
        let is_other = |binding: &&ClusterRoleBinding| {
            let label = binding.metadata.labels.as_ref().and_then(|labels| labels.get(DEFAULTS.0));
            label.is_none_or(|value| value != DEFAULTS.1)
        };
        let bound = cluster_roles.iter().filter(is_other).flat_map(|binding| binding.subjects.iter().flatten());
        let bound = bound.filter_map(|subject| Subject::of_binding(subject, ""));
        // Only an administrator can bind a ServiceAccount in the whole cluster.
        let (operators, cluster): (BTreeSet<_>, BTreeSet<_>) =
            bound.partition(|subject| subject.is_account(SERVICE_ACCOUNT));
        let mut namespaced: BTreeMap<String, BTreeSet<Subject>> = BTreeMap::new();
        for binding in roles {
            let namespace = binding.metadata.namespace.as_deref().unwrap_or_default();
            let subjects = binding.subjects.iter().flatten();
            let subjects = subjects.filter_map(|subject| Subject::of_binding(subject, namespace));
            let others = subjects.filter(|subject| !operators.contains(subject));
            namespaced.entry(namespace.to_owned()).or_default().extend(others);
        }
        Self { cluster, namespaced, operators }
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::rbac::v1;
    use kube::core::ObjectMeta;

    use super::*;

    fn subject(kind: &str, name: &str, namespace: Option<&str>) -> v1::Subject {
        let namespace = namespace.map(str::to_owned);
        v1::Subject { kind: kind.into(), name: name.into(), namespace, ..v1::Subject::default() }
    }

    #[test]
    fn operator_and_cluster_are_left_out() {
        let cluster = |labels: &[(&str, &str)], subjects: Vec<v1::Subject>| {
            let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            let metadata = ObjectMeta { labels: Some(labels), ..ObjectMeta::default() };
            ClusterRoleBinding { metadata, subjects: Some(subjects), ..ClusterRoleBinding::default() }
        };
        let role = |namespace: &str, subjects: Vec<v1::Subject>| {
            let metadata = ObjectMeta { namespace: Some(namespace.into()), ..ObjectMeta::default() };
            RoleBinding { metadata, subjects: Some(subjects), ..RoleBinding::default() }
        };
        let account = |namespace: &str| subject("ServiceAccount", SERVICE_ACCOUNT, Some(namespace));
        let bindings = Bindings::of(
            &[
                cluster(&[DEFAULTS], vec![subject("Group", "system:masters", None)]),
                cluster(&[("a", "b")], vec![account("operator"), subject("User", "root", None)]),
                ClusterRoleBinding::default(),
            ],
            &[
                role("team", vec![subject("User", "jane", None), account("operator")]),
                role("team", vec![subject("User", "jane", None), account("team")]),
            ],
        );
        let jane_and_forged = BTreeSet::from([Subject::user("jane", &[]), Subject::account("team", SERVICE_ACCOUNT)]);
        assert_eq!(
            bindings,
            Bindings {
                cluster: BTreeSet::from([Subject::user("root", &[])]),
                namespaced: BTreeMap::from([("team".to_owned(), jane_and_forged)]),
                operators: BTreeSet::from([Subject::account("operator", SERVICE_ACCOUNT)]),
            }
        );
    }
}
