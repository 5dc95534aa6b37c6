//! Where a component is installed on a cluster, as cluster-scoped objects show. All who may write
//! ConfigMaps in any namespace can create an anchor there; nobody without rights on the whole
//! cluster can create a ClusterRoleBinding.

use std::collections::BTreeSet;

use k8s_openapi::api::rbac::v1::ClusterRoleBinding;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knative_operator_shared::api::Component;
use knative_operator_shared::label::{APP_NAME, OWNER_DIGEST};
use kube::api::ListParams;
use kube::{Api, Client};

use super::managed_fields::{has_go_operator_fields, owned_fields};
use super::store_error::StoreError;

/// Number of ClusterRoleBindings that are read; an installation has less than fifty.
const PAGE: u32 = 500;

/// Namespaces and names of ConfigMaps.
pub type Names = BTreeSet<(String, String)>;

/// The namespaces of the ServiceAccounts to which the ClusterRoleBindings of `component` grant
/// something, which this operator or the Go operator applied: those where it is installed.
pub async fn installed_in(client: &Client, component: Component) -> Result<BTreeSet<String>, StoreError> {
    let subjects = bindings(client, component).await?.into_iter().filter_map(|binding| binding.subjects).flatten();
    Ok(subjects.filter_map(|subject| subject.namespace).collect())
}

/// The marks of owners on the ClusterRoleBindings of `component`.
pub async fn marks(client: &Client, component: Component) -> Result<BTreeSet<String>, StoreError> {
    let annotations = bindings(client, component).await?.into_iter().filter_map(|binding| binding.metadata.annotations);
    Ok(annotations.filter_map(|mut annotations| annotations.remove(OWNER_DIGEST)).collect())
}

/// The ClusterRoleBindings of `component` that this operator or the Go operator applied.
async fn bindings(client: &Client, component: Component) -> Result<Vec<ClusterRoleBinding>, StoreError> {
    let selector = ListParams::default().labels(&format!("{APP_NAME}={}", component.canonical())).limit(PAGE);
    let listed = Api::<ClusterRoleBinding>::all(client.clone()).list(&selector).await;
    let failed = |source| StoreError::Api { what: "failed to list ClusterRoleBindings".to_owned(), source };
    let is_applied = |meta: &ObjectMeta| owned_fields(meta).is_some() || has_go_operator_fields(meta);
    let found = listed.map_err(failed)?.items.into_iter();
    Ok(found.filter(|binding| is_applied(&binding.metadata)).collect())
}

/// Which anchors count: those in the canonical namespace, those of `local` resources, and those
/// where the component is installed.
pub struct Credible<'a> {
    component: Component,
    local: &'a Names,
    installed_in: Option<BTreeSet<String>>,
}

impl<'a> Credible<'a> {
    /// With the ConfigMaps `local` of resources that install on this very cluster, whether they
    /// have begun or not.
    pub fn of(component: Component, local: &'a Names) -> Self {
        Self { component, local, installed_in: None }
    }

    /// Looks where the component is installed, if one of `anchors` doesn't count without that.
    pub async fn look<'m>(
        &mut self,
        client: &Client,
        mut anchors: impl Iterator<Item = &'m ObjectMeta>,
    ) -> Result<(), StoreError> {
        if self.installed_in.is_none() && anchors.any(|anchor| !self.counts(anchor)) {
            self.installed_in = Some(installed_in(client, self.component).await?);
        }
        Ok(())
    }

    /// Whether the anchor with `meta` counts.
    pub fn counts(&self, meta: &ObjectMeta) -> bool {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let (namespace, name) = (text(&meta.namespace), text(&meta.name));
        namespace == self.component.canonical()
            || self.installed_in.as_ref().is_some_and(|namespaces| namespaces.contains(&namespace))
            || self.local.contains(&(namespace, name))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use http::{Request, Response};
    use knative_operator_shared::label::FIELD_MANAGER;
    use kube::client::Body;
    use serde_json::{Value, json};

    use super::*;

    fn binding(manager: &str, operation: &str, namespace: &str) -> Value {
        json!({
            "metadata": {"name": "a", "annotations": {OWNER_DIGEST: manager}, "managedFields": [{"manager": manager, "operation": operation, "fieldsType": "FieldsV1", "fieldsV1": {}}]},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "a"},
            "subjects": [{"kind": "ServiceAccount", "name": "controller", "namespace": namespace}, {"kind": "Group", "name": "a"}],
        })
    }

    /// A cluster with `bindings` that counts its requests.
    fn cluster(bindings: &[Value]) -> (Client, Arc<AtomicUsize>) {
        let requests = Arc::new(AtomicUsize::new(0));
        let (counted, list) = (Arc::clone(&requests), json!({"metadata": {}, "items": bindings}).to_string());
        let answer = move |request: Request<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            let uri = request.uri().to_string();
            assert!(uri.contains("clusterrolebindings") && uri.contains("knative-serving"), "{uri}");
            let list = list.clone();
            async move { Response::builder().body(Body::from(list.into_bytes())).map_err(|error| error.to_string()) }
        };
        (Client::new(tower::service_fn(answer), "n"), requests)
    }

    #[tokio::test]
    async fn anchor_elsewhere_counts_only_where_the_component_is_installed() {
        let bindings = [
            binding("manifestival", "Update", "team"),
            binding(FIELD_MANAGER, "Apply", "mine"),
            binding("kubectl", "Update", "copied"),
        ];
        let (client, requests) = cluster(&bindings);
        let local = Names::from([("local".to_owned(), "a".to_owned())]);
        let anchor = |namespace: &str, name: &str| ObjectMeta {
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        };
        let mut credible = Credible::of(Component::Serving, &local);
        let sure = [anchor("knative-serving", "a"), anchor("local", "a")];
        credible.look(&client, sure.iter()).await.unwrap();
        assert_eq!(requests.load(Ordering::Relaxed), 0);
        assert!(sure.iter().all(|anchor| credible.counts(anchor)));
        for (namespace, name, counts) in
            [("team", "a", true), ("mine", "a", true), ("copied", "a", false), ("local", "b", false), ("x", "a", false)]
        {
            let found = anchor(namespace, name);
            credible.look(&client, [&found].into_iter()).await.unwrap();
            assert_eq!(credible.counts(&found), counts, "{namespace}");
        }
        assert_eq!(requests.load(Ordering::Relaxed), 1);
        let marks = marks(&client, Component::Serving).await.unwrap();
        assert_eq!(marks, BTreeSet::from([FIELD_MANAGER, "manifestival"].map(str::to_owned)));
    }
}
