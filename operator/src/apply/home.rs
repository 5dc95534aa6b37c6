//! Where the inventory is kept: in the anchor ConfigMap on a spoke, which owns the component's objects there, and in a
//! ConfigMap that the custom resource owns locally.

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
use crate::owner::Owner;

const KEY: &str = "inventory";

/// Where the inventory of one custom resource is kept.
#[derive(Clone, Debug)]
pub struct Home {
    namespace: String,
    name: String,
    base: Value,
    remote: bool,
    kind: &'static str,
}

/// What a home holds.
#[derive(Debug)]
pub enum Found {
    /// What was stored before.
    Stored(Inventory),
    /// What it was made with just now: nothing of it was applied yet.
    New(Inventory),
}

/// Why the home can't be used.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// The API server refused something.
    #[error("{what}")]
    Api {
        /// What was tried.
        what: String,
        /// Why not.
        source: kube::Error,
    },
    /// The namespace on the spoke is somebody else's.
    #[error(
        "namespace {namespace} of the target cluster belongs to another installation, whose anchor is ConfigMap {anchor}; delete its {kind} first, on the hub that it was made on"
    )]
    Occupied {
        /// The namespace.
        namespace: String,
        /// The anchor of the other installation.
        anchor: String,
        /// The kind of custom resource.
        kind: String,
    },
    /// What is stored can't be read.
    #[error(
        "the inventory in ConfigMap {0} can't be read; restore it, or delete its data key \"inventory\" to have everything applied again"
    )]
    Unreadable(String, #[source] serde_json::Error),
}

impl HomeError {
    /// Whether the namespace is being deleted.
    pub fn is_namespace_terminating(&self) -> bool {
        let Self::Api { source: kube::Error::Api(status), .. } = self else { return false };
        status.details.iter().flat_map(|details| &details.causes).any(|cause| cause.reason == "NamespaceTerminating")
    }
}

impl Home {
    /// The home of `resource`.
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

    /// The identity of its ConfigMap.
    pub fn id(&self) -> ObjectId {
        ObjectId::new("", "ConfigMap", &self.namespace, &self.name)
    }

    /// Whether it is there.
    pub async fn is_there(&self, client: &Client) -> Result<bool, HomeError> {
        let found = self.maps(client).get_metadata_opt(&self.name).await.map_err(self.failed("read"))?;
        Ok(found.is_some_and(|map| map.metadata.annotations.is_some_and(|a| a.contains_key(ANCHOR))))
    }

    fn maps(&self, client: &Client) -> Api<ConfigMap> {
        Api::namespaced(client.clone(), &self.namespace)
    }

    fn failed(&self, doing: &str) -> impl FnOnce(kube::Error) -> HomeError {
        let what = format!("failed to {doing} ConfigMap {}/{}", self.namespace, self.name);
        |source| HomeError::Api { what, source }
    }

    /// What is stored, and the uid of the ConfigMap; none if it isn't there.
    pub async fn load(&self, client: &Client) -> Result<Option<(String, Inventory)>, HomeError> {
        let Some(map) = self.maps(client).get_opt(&self.name).await.map_err(self.failed("read"))? else {
            return Ok(None);
        };
        let text = map.data.as_ref().and_then(|d| d.get(KEY));
        let inventory = text.map(|t| Inventory::decode(t)).transpose();
        let inventory = inventory.map_err(|e| HomeError::Unreadable(format!("{}/{}", self.namespace, self.name), e))?;
        Ok(Some((map.metadata.uid.unwrap_or_default(), inventory.unwrap_or_default())))
    }

    /// Makes sure that the home is there; its uid and what is stored: `inventory` where nothing was. On a spoke the
    /// namespace is created first where it is missing, as `namespace` says, and left as it is where it exists.
    pub async fn ensure(
        &self,
        client: &Client,
        namespace: &Value,
        inventory: Inventory,
    ) -> Result<(String, Found), HomeError> {
        if let Some((uid, stored)) = self.load(client).await? {
            return Ok((uid, Found::Stored(stored)));
        }
        // In a namespace that wasn't there nobody else can be.
        if self.remote && !self.create_namespace(client, namespace).await? {
            self.ensure_alone(client).await?;
        }
        let map = self.write(client, &inventory).await.map_err(self.failed("create"))?;
        Ok((map.uid.unwrap_or_default(), Found::New(inventory)))
    }

    /// Two resources, or two hubs, may reach the same cluster by different ways: the first one stays.
    async fn ensure_alone(&self, client: &Client) -> Result<(), HomeError> {
        let labels = &self.base["metadata"]["labels"];
        let selector =
            format!("{MANAGED_BY}={FIELD_MANAGER},{APP_NAME}={}", labels[APP_NAME].as_str().unwrap_or_default());
        let found = self
            .maps(client)
            .list_metadata(&ListParams::default().labels(&selector))
            .await
            .map_err(self.failed("look for others beside"))?;
        let anchor = |meta: &ObjectMeta| {
            meta.annotations.as_ref().is_some_and(|a| a.contains_key(ANCHOR)) && meta.deletion_timestamp.is_none()
        };
        let other = found
            .items
            .into_iter()
            .map(|m| m.metadata)
            .find(|meta| meta.name.as_deref() != Some(&self.name) && anchor(meta));
        let Some(other) = other else { return Ok(()) };
        Err(HomeError::Occupied {
            namespace: self.namespace.clone(),
            anchor: other.name.unwrap_or_default(),
            kind: self.kind.to_owned(),
        })
    }

    /// Creates the namespace; false if it is there already.
    async fn create_namespace(&self, client: &Client, namespace: &Value) -> Result<bool, HomeError> {
        let mut wanted = namespace.clone();
        wanted["metadata"]["name"] = json!(self.namespace);
        for label in [MANAGED_BY, CR_NAME, APP_NAME] {
            wanted["metadata"]["labels"][label] = self.base["metadata"]["labels"][label].clone();
        }
        let failed = |source| HomeError::Api { what: format!("failed to create Namespace {}", self.namespace), source };
        let wanted: Namespace = serde_json::from_value(wanted).map_err(|e| failed(kube::Error::SerdeError(e)))?;
        match Api::<Namespace>::all(client.clone()).create(&post_as(FIELD_MANAGER), &wanted).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(false),
            other => other.map(|_| true).map_err(failed),
        }
    }

    /// Stores `inventory`.
    pub async fn store(&self, client: &Client, inventory: &Inventory) -> Result<(), HomeError> {
        self.write(client, inventory).await.map(drop).map_err(self.failed("write"))
    }

    async fn write(&self, client: &Client, inventory: &Inventory) -> kube::Result<ObjectMeta> {
        let mut map = self.base.clone();
        map["data"] = json!(BTreeMap::from([(KEY, inventory.encode())]));
        let params = PatchParams::apply(FIELD_MANAGER).force();
        Ok(self.maps(client).patch_metadata(&self.name, &params, &Patch::Apply(&map)).await?.metadata)
    }

    /// Takes the home away, and on a spoke the namespace if the operator created it. True once both are gone.
    pub async fn remove(&self, client: &Client) -> Result<bool, HomeError> {
        let deleted = self.maps(client).delete(&self.name, &DeleteParams::default()).await;
        absent(deleted.map(drop)).map_err(self.failed("delete"))?;
        if !self.remote {
            return Ok(true);
        }
        let failed = |source| HomeError::Api { what: format!("failed to delete Namespace {}", self.namespace), source };
        let namespaces = Api::<Namespace>::all(client.clone());
        let Some(found) = namespaces.get_opt(&self.namespace).await.map_err(failed)? else { return Ok(true) };
        // Only the resource that it was created for takes it away, or that the Go operator had created it for.
        let labels = found.metadata.labels.unwrap_or_default();
        let created = found
            .metadata
            .annotations
            .is_some_and(|a| a.get(takeover::CREATED.0).is_some_and(|v| v == takeover::CREATED.1));
        let ours = created
            || [MANAGED_BY, CR_NAME]
                .iter()
                .all(|l| labels.get(*l).map(String::as_str) == self.base["metadata"]["labels"][*l].as_str());
        if !ours {
            return Ok(true);
        }
        if found.metadata.deletion_timestamp.is_none() {
            absent(namespaces.delete(&self.namespace, &DeleteParams::default()).await.map(drop)).map_err(failed)?;
        }
        Ok(false)
    }
}

/// What isn't there need not be deleted.
fn absent(outcome: kube::Result<()>) -> kube::Result<()> {
    match outcome {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other,
    }
}
