//! The store of the inventory: the anchor ConfigMap on a spoke, which owns the component's objects,
//! or a ConfigMap that the custom resource owns on the local cluster.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use knative_operator_runtime::identity::post_as;
use knative_operator_shared::api::Knative;
use knative_operator_shared::label::{ANCHOR, APP_NAME, CR_NAME, DESCRIPTION, FIELD_MANAGER, MANAGED_BY, PROTECTED};
use knative_operator_shared::name;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::inventory::Inventory;
use super::takeover;
use crate::object::ObjectId;
use crate::object::Owner;

const KEY: &str = "inventory";

/// The ConfigMap that stores the inventory of one custom resource.
#[derive(Clone, Debug)]
pub struct InventoryStore {
    namespace: String,
    name: String,
    base: Value,
    remote: bool,
    kind: &'static str,
}

/// Inventory in the store.
#[derive(Debug)]
pub enum Contents {
    /// The inventory that was stored before.
    Existing(Inventory),
    /// The inventory that was stored before anything was applied.
    Created(Inventory),
}

/// Why the store can't be used.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The API server refused a request.
    #[error("{what}")]
    Api {
        /// What was tried.
        what: String,
        /// Its error.
        source: kube::Error,
    },
    /// Another installation uses the namespace on the spoke.
    #[error(
        "namespace {namespace} of the target cluster belongs to another installation with the anchor ConfigMap {anchor}; delete its {kind} first, on the hub where it was created"
    )]
    Occupied {
        /// The namespace.
        namespace: String,
        /// The anchor of the other installation.
        anchor: String,
        /// The kind of custom resource.
        kind: String,
    },
    /// The stored inventory can't be parsed.
    #[error(
        "cannot read the inventory in ConfigMap {0}; restore it, or delete its data key \"inventory\" to apply everything again"
    )]
    Unreadable(String, #[source] serde_json::Error),
}

impl StoreError {
    /// Whether the namespace is terminating.
    pub fn is_namespace_terminating(&self) -> bool {
        let Self::Api { source: kube::Error::Api(status), .. } = self else { return false };
        status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == "NamespaceTerminating")
    }
}

impl InventoryStore {
    /// The store of `resource`.
    pub fn of(resource: &Knative) -> Self {
        let component = resource.component();
        let remote = resource.common().cluster_profile_ref.is_some();
        let namespace = resource.target_namespace().to_owned();
        let name =
            if remote { name::anchor(component, resource.name()) } else { name::inventory(component, resource.name()) };
        let mut metadata = json!({
            "name": name,
            "namespace": namespace,
            "labels": {MANAGED_BY: FIELD_MANAGER, CR_NAME: resource.name(), APP_NAME: component.canonical()},
        });
        if remote {
            metadata["annotations"] = json!({
                ANCHOR: "true",
                PROTECTED: "true",
                DESCRIPTION: format!(
                    "Owns everything that the Knative operator installed for {component} {}/{} of its hub. Do not delete it: everything in this \
                     namespace that it owns would be deleted with it. To uninstall, delete the {component} on the hub.",
                    resource.namespace(),
                    resource.name()
                ),
            });
        } else {
            metadata["ownerReferences"] = json!([Owner::of(resource, "").reference()]);
        }
        let base = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata});
        Self { namespace, name, base, remote, kind: component.kind() }
    }

    /// Whether it is on a spoke.
    pub fn is_remote(&self) -> bool {
        self.remote
    }

    /// Identity of the ConfigMap.
    pub fn id(&self) -> ObjectId {
        ObjectId::new("", "ConfigMap", &self.namespace, &self.name)
    }

    /// Whether the anchor exists.
    pub async fn exists(&self, client: &Client) -> Result<bool, StoreError> {
        let found = self.config_maps(client).get_metadata_opt(&self.name).await.map_err(self.failed_to("read"))?;
        Ok(found.is_some_and(|map| map.metadata.annotations.is_some_and(|a| a.contains_key(ANCHOR))))
    }

    fn config_maps(&self, client: &Client) -> Api<ConfigMap> {
        Api::namespaced(client.clone(), &self.namespace)
    }

    fn failed_to(&self, doing: &str) -> impl FnOnce(kube::Error) -> StoreError {
        let what = format!("failed to {doing} ConfigMap {}/{}", self.namespace, self.name);
        |source| StoreError::Api { what, source }
    }

    /// The uid of the ConfigMap and its inventory; `None` if there is none.
    pub async fn load(&self, client: &Client) -> Result<Option<(String, Inventory)>, StoreError> {
        let Some(map) = self.config_maps(client).get_opt(&self.name).await.map_err(self.failed_to("read"))? else {
            return Ok(None);
        };
        let text = map.data.as_ref().and_then(|d| d.get(KEY));
        let inventory = text.map(|t| Inventory::decode(t)).transpose();
        let inventory =
            inventory.map_err(|e| StoreError::Unreadable(format!("{}/{}", self.namespace, self.name), e))?;
        Ok(Some((map.metadata.uid.unwrap_or_default(), inventory.unwrap_or_default())))
    }

    /// Ensures that the ConfigMap exists, with `inventory` if it is new. Returns its uid and
    /// contents. On a spoke, a missing namespace is created from `namespace`; an existing one is
    /// left unchanged.
    pub async fn ensure(
        &self,
        client: &Client,
        namespace: &Value,
        inventory: Inventory,
    ) -> Result<(String, Contents), StoreError> {
        if let Some((uid, stored)) = self.load(client).await? {
            return Ok((uid, Contents::Existing(stored)));
        }
        // A new namespace has no other installation.
        if self.remote && !self.create_namespace(client, namespace).await? {
            self.ensure_exclusive(client).await?;
        }
        let map = self.write(client, &inventory).await.map_err(self.failed_to("create"))?;
        Ok((map.uid.unwrap_or_default(), Contents::Created(inventory)))
    }

    /// Fails if the namespace has the anchor of another resource or hub: the first installation
    /// stays.
    async fn ensure_exclusive(&self, client: &Client) -> Result<(), StoreError> {
        let labels = &self.base["metadata"]["labels"];
        let selector =
            format!("{MANAGED_BY}={FIELD_MANAGER},{APP_NAME}={}", labels[APP_NAME].as_str().unwrap_or_default());
        let found = self
            .config_maps(client)
            .list_metadata(&ListParams::default().labels(&selector))
            .await
            .map_err(self.failed_to("list the anchors beside"))?;
        let anchor = |meta: &ObjectMeta| {
            meta.annotations.as_ref().is_some_and(|a| a.contains_key(ANCHOR)) && meta.deletion_timestamp.is_none()
        };
        let other = found
            .items
            .into_iter()
            .map(|m| m.metadata)
            .find(|meta| meta.name.as_deref() != Some(&self.name) && anchor(meta));
        let Some(other) = other else { return Ok(()) };
        Err(StoreError::Occupied {
            namespace: self.namespace.clone(),
            anchor: other.name.unwrap_or_default(),
            kind: self.kind.to_owned(),
        })
    }

    /// Creates the namespace; false if it exists.
    async fn create_namespace(&self, client: &Client, namespace: &Value) -> Result<bool, StoreError> {
        let mut wanted = namespace.clone();
        wanted["metadata"]["name"] = json!(self.namespace);
        for label in [MANAGED_BY, CR_NAME, APP_NAME] {
            wanted["metadata"]["labels"][label] = self.base["metadata"]["labels"][label].clone();
        }
        let failed =
            |source| StoreError::Api { what: format!("failed to create Namespace {}", self.namespace), source };
        let wanted: Namespace = serde_json::from_value(wanted).map_err(|e| failed(kube::Error::SerdeError(e)))?;
        match Api::<Namespace>::all(client.clone()).create(&post_as(FIELD_MANAGER), &wanted).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            other => other.map(|_| true).map_err(failed),
        }
    }

    /// Stores `inventory`.
    pub async fn store(&self, client: &Client, inventory: &Inventory) -> Result<(), StoreError> {
        self.write(client, inventory).await.map(drop).map_err(self.failed_to("write"))
    }

    async fn write(&self, client: &Client, inventory: &Inventory) -> kube::Result<ObjectMeta> {
        let mut map = self.base.clone();
        map["data"] = json!(BTreeMap::from([(KEY, inventory.encode())]));
        let params = PatchParams::apply(FIELD_MANAGER).force();
        Ok(self.config_maps(client).patch_metadata(&self.name, &params, &Patch::Apply(&map)).await?.metadata)
    }

    /// Deletes the ConfigMap, and on a spoke the namespace if the operator created it. True once
    /// both are gone.
    pub async fn delete(&self, client: &Client) -> Result<bool, StoreError> {
        let deleted = self.config_maps(client).delete(&self.name, &DeleteParams::default()).await;
        ignore_not_found(deleted.map(drop)).map_err(self.failed_to("delete"))?;
        if !self.remote {
            return Ok(true);
        }
        let failed =
            |source| StoreError::Api { what: format!("failed to delete Namespace {}", self.namespace), source };
        let namespaces = Api::<Namespace>::all(client.clone());
        let Some(found) = namespaces.get_opt(&self.namespace).await.map_err(failed)? else { return Ok(true) };
        // Only the resource that created the namespace deletes it. A namespace of the Go operator
        // counts as its own.
        let labels = found.metadata.labels.unwrap_or_default();
        let created = found.metadata.annotations.is_some_and(|a| {
            a.get(takeover::CREATED_ANNOTATION.0).is_some_and(|v| v == takeover::CREATED_ANNOTATION.1)
        });
        let ours = created
            || [MANAGED_BY, CR_NAME]
                .iter()
                .all(|l| labels.get(*l).map(String::as_str) == self.base["metadata"]["labels"][*l].as_str());
        if !ours {
            return Ok(true);
        }
        if found.metadata.deletion_timestamp.is_none() {
            ignore_not_found(namespaces.delete(&self.namespace, &DeleteParams::default()).await.map(drop))
                .map_err(failed)?;
        }
        Ok(false)
    }
}

/// Treats 404 as success: the object is gone.
fn ignore_not_found(outcome: kube::Result<()>) -> kube::Result<()> {
    match outcome {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other,
    }
}
