//! The store of the inventory: the anchor ConfigMap on a spoke, which owns the component's objects,
//! or a ConfigMap that the custom resource owns on the local cluster. It records the owner of the
//! installation ([`super::claim`]).

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, NamespaceCondition};
use knative_operator_runtime::identity::post_as;
use knative_operator_shared::api::{Component, Knative};
use knative_operator_shared::label::{
    ANCHOR, APP_NAME, CR_NAME, DESCRIPTION, FIELD_MANAGER, MANAGED_BY, OWNER, OWNER_DIGEST, PROTECTED,
};
use knative_operator_shared::name;
use knative_operator_shared::text::clip;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::claim::Anchor;
use super::inventory::Inventory;
use super::places::{Credible, Names};
use super::proof::Proof;
use super::store_error::StoreError;
use super::takeover;
use knative_operator_objects::{InstallationOwner, ObjectId, Owner};

const KEY: &str = "inventory";
/// Number of ConfigMaps in a page of a list.
const PAGE: u32 = 100;
/// Maximum number of conditions of a namespace in a message, and of bytes of each.
const MAX_CONDITIONS: usize = 4;
const MAX_CONDITION: usize = 256;
/// Number of other anchors after which no further page is read.
const MAX_OTHERS: usize = 16;

/// The ConfigMap that stores the inventory of one custom resource.
#[derive(Clone, Debug)]
pub struct InventoryStore {
    namespace: String,
    name: String,
    base: Value,
    remote: bool,
    component: Component,
}

/// The ConfigMap as it was read or written last.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Identity, version and owner.
    pub anchor: Anchor,
    /// The finalizers that it waits for, if it is being deleted.
    pub terminating: Option<String>,
    inventory: Option<String>,
    /// The description that version 0.2.0 wrote, and uids of owners.
    description: Option<String>,
    owners: Vec<String>,
}

impl Stored {
    fn of(map: ConfigMap) -> Self {
        let inventory = map.data.and_then(|mut data| data.remove(KEY));
        let owners = map.metadata.owner_references.iter().flatten().map(|owner| owner.uid.clone()).collect();
        let description = annotation(&map.metadata, DESCRIPTION).map(str::to_owned);
        let finalizers = || map.metadata.finalizers.iter().flatten().map(String::as_str).collect::<Vec<_>>().join(", ");
        let terminating = map.metadata.deletion_timestamp.as_ref().map(|_| finalizers());
        Self { anchor: Anchor::of(&map.metadata), terminating, inventory, description, owners }
    }

    /// Whether it was made for `resource`, as far as it tells: by the owner reference on the local
    /// cluster, by the description on a spoke.
    pub fn names(&self, resource: &Knative) -> bool {
        if resource.common().cluster_profile_ref.is_none() {
            return resource.meta().uid.as_ref().is_some_and(|uid| self.owners.contains(uid));
        }
        let called = format!(" {} {}/{} of its hub.", resource.component(), resource.namespace(), resource.name());
        self.description.as_ref().is_some_and(|description| description.contains(&called))
    }

    /// Its inventory; empty if it has none.
    pub fn inventory(&self) -> Result<Inventory, StoreError> {
        let Anchor { namespace, name, .. } = &self.anchor;
        let inventory = self.inventory.as_deref().map(Inventory::decode).transpose();
        Ok(inventory.map_err(|e| StoreError::Unreadable(format!("{namespace}/{name}"), e))?.unwrap_or_default())
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
        Self { namespace, name, base, remote, component }
    }

    /// Whether it is on a spoke.
    pub fn is_remote(&self) -> bool {
        self.remote
    }

    /// Identity of the ConfigMap.
    pub fn id(&self) -> ObjectId {
        ObjectId::new("", "ConfigMap", &self.namespace, &self.name)
    }

    /// Whether the namespace is being deleted.
    pub async fn has_terminating_namespace(&self, client: &Client) -> Result<bool, StoreError> {
        Ok(self.read_namespace(client).await?.is_some_and(|meta| meta.deletion_timestamp.is_some()))
    }

    async fn read_namespace(&self, client: &Client) -> Result<Option<ObjectMeta>, StoreError> {
        let failed = |source| StoreError::Api { what: format!("failed to read Namespace {}", self.namespace), source };
        let found = Api::<Namespace>::all(client.clone()).get_metadata_opt(&self.namespace).await.map_err(failed)?;
        Ok(found.map(|namespace| namespace.metadata))
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

    /// The ConfigMap; `None` if there is none.
    pub async fn load(&self, client: &Client) -> Result<Option<Stored>, StoreError> {
        let found = self.config_maps(client).get_opt(&self.name).await.map_err(self.failed_to("read"))?;
        Ok(found.map(Stored::of))
    }

    /// The anchors of other installations of the component on the cluster that count
    /// ([`super::places`], with the ConfigMaps `local` of this hub's resources), with any name, and
    /// those of the Go operator: at most sixteen, and none after the first one with a confirmed
    /// owner. Those of `me` in other namespaces, too. And whether the store itself may exist.
    pub async fn others(
        &self,
        client: &Client,
        me: &InstallationOwner,
        local: &Names,
    ) -> Result<(Vec<Anchor>, bool), StoreError> {
        let mut credible = Credible::of(self.component, local);
        let mut selector = ListParams::default().labels(&selector()).limit(PAGE);
        let mut may_exist = false;
        let (api, mut others) = (Api::<ConfigMap>::all(client.clone()), Vec::new());
        let mut pages = super::pages::Pages::new();
        loop {
            let page = pages.next(&api, &selector).await.map_err(|source| StoreError::Api {
                what: "failed to list the anchors of other installations: ConfigMaps in all namespaces".to_owned(),
                source,
            })?;
            let is_own = |meta: &ObjectMeta| {
                (meta.name.as_ref(), meta.namespace.as_ref()) == (Some(&self.name), Some(&self.namespace))
            };
            let anchors = page.items.iter().map(|map| &map.metadata);
            credible.look(client, anchors.filter(|meta| !is_own(meta) && is_anchor(self.component, meta))).await?;
            let is_other = |meta: &ObjectMeta| {
                may_exist |= is_own(meta);
                !is_own(meta) && is_anchor(self.component, meta) && credible.counts(meta)
            };
            let found = page.items.into_iter().map(|map| map.metadata).filter(is_other);
            // Before the page is looked at: copies of the own record must not hide the others.
            let is_copy = |anchor: &Anchor| anchor.is_of(me) && !self.is_elsewhere(anchor, me);
            others.extend(found.map(|meta| Anchor::of(&meta)).filter(|anchor| !is_copy(anchor)));
            let is_other_owner = |anchor: &Anchor| anchor.is_confirmed() && !anchor.is_of(me);
            match page.metadata.continue_.filter(|next| !next.is_empty()) {
                Some(next) if others.len() < MAX_OTHERS && !others.iter().any(is_other_owner) => {
                    selector = selector.continue_token(&next);
                }
                Some(_) => return Ok((others, true)),
                None => return Ok((others, may_exist)),
            }
        }
    }

    /// Whether `anchor` is that of `me` in another namespace.
    fn is_elsewhere(&self, anchor: &Anchor, me: &InstallationOwner) -> bool {
        let names = [name::anchor(self.component, &me.name), name::inventory(self.component, &me.name)];
        anchor.namespace != self.namespace && names.contains(&anchor.name)
    }

    /// Creates the ConfigMap with `owner` and `inventory`; `None` if it exists.
    pub async fn create(
        &self,
        client: &Client,
        owner: &InstallationOwner,
        inventory: &Inventory,
    ) -> Result<Option<Stored>, StoreError> {
        let inventory = inventory.encode();
        let mut map = self.manifest(owner, Some(&inventory));
        // The apply that confirms the owner sets them: only what is applied can be removed by a
        // later apply, as for a resource that is created again.
        map["metadata"].as_object_mut().map(|metadata| metadata.remove("ownerReferences"));
        let failed = |error| self.failed_to("create")(error);
        let map: ConfigMap = serde_json::from_value(map).map_err(|e| failed(kube::Error::SerdeError(e)))?;
        match self.config_maps(client).create(&post_as(FIELD_MANAGER), &map).await {
            Err(kube::Error::Api(status)) if status.code == 409 => Ok(None),
            created => Ok(Some(Stored::of(created.map_err(failed)?))),
        }
    }

    /// Creates the namespace on a spoke from `namespace`; false if there is one, which is left
    /// unchanged.
    pub async fn create_namespace(
        &self,
        client: &Client,
        namespace: &Value,
        owner: &InstallationOwner,
    ) -> Result<bool, StoreError> {
        let mut wanted = namespace.clone();
        wanted["metadata"]["name"] = json!(self.namespace);
        wanted["metadata"]["annotations"][OWNER_DIGEST] = json!(owner.mark());
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

    /// Replaces the owner of `stored`, which must be unchanged since.
    pub async fn record(
        &self,
        client: &Client,
        stored: &Stored,
        owner: &InstallationOwner,
    ) -> Result<Stored, StoreError> {
        self.write(client, &stored.anchor, owner, stored.inventory.as_deref()).await
    }

    /// Replaces the inventory of the installation of `owner` in the ConfigMap, which must be as in
    /// `anchor` still; returns its new version.
    pub async fn store(
        &self,
        client: &Client,
        anchor: &Anchor,
        owner: &InstallationOwner,
        inventory: &Inventory,
    ) -> Result<Anchor, StoreError> {
        let inventory = inventory.encode();
        Ok(self.write(client, anchor, owner, Some(&inventory)).await?.anchor)
    }

    fn manifest(&self, owner: &InstallationOwner, inventory: Option<&str>) -> Value {
        let mut map = self.base.clone();
        map["metadata"]["annotations"][OWNER] = json!(owner.encode());
        if owner.released
            && let Some(metadata) = map["metadata"].as_object_mut()
        {
            // It outlives the resource.
            metadata.remove("ownerReferences");
        }
        if let Some(inventory) = inventory {
            map["data"] = json!({KEY: inventory});
        }
        map
    }

    async fn write(
        &self,
        client: &Client,
        anchor: &Anchor,
        owner: &InstallationOwner,
        inventory: Option<&str>,
    ) -> Result<Stored, StoreError> {
        let mut map = self.manifest(owner, inventory);
        map["metadata"]["uid"] = json!(anchor.uid);
        map["metadata"]["resourceVersion"] = json!(anchor.version.to_string());
        let params = PatchParams::apply(FIELD_MANAGER).force();
        let written = self.config_maps(client).patch_metadata(&self.name, &params, &Patch::Apply(&map)).await;
        let written = written.map_err(self.failed_to("write"))?;
        let inventory = inventory.map(str::to_owned);
        Ok(Stored { inventory, ..Stored::of(ConfigMap { metadata: written.metadata, ..ConfigMap::default() }) })
    }

    /// Deletes the ConfigMap, if it is as in `anchor` still.
    pub async fn delete(&self, client: &Client, anchor: &Anchor) -> Result<(), StoreError> {
        let preconditions =
            Preconditions { uid: Some(anchor.uid.clone()), resource_version: Some(anchor.version.to_string()) };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        ignore_not_found(self.config_maps(client).delete(&self.name, &params).await.map(drop))
            .map_err(self.failed_to("delete"))
    }

    /// Deletes the namespace on a spoke, if it shows `proof` that the operator created it for the
    /// owner, and no other installation is in it. What is left to wait for, for people; `None` once
    /// it is gone, or if it stays.
    pub async fn delete_namespace(&self, client: &Client, proof: &Proof) -> Result<Option<String>, StoreError> {
        if !self.remote {
            return Ok(None);
        }
        let failed =
            |source| StoreError::Api { what: format!("failed to delete Namespace {}", self.namespace), source };
        let namespaces = Api::<Namespace>::all(client.clone());
        let Some(found) = namespaces.get_opt(&self.namespace).await.map_err(failed)? else { return Ok(None) };
        if !self.has_created(&found.metadata, proof) {
            return Ok(None);
        }
        if found.metadata.deletion_timestamp.is_none() {
            let beside = self.config_maps(client).list_metadata(&ListParams::default().labels(&selector())).await;
            let is_other = |meta: &ObjectMeta| {
                meta.name.as_ref() != Some(&self.name) && Component::ALL.iter().any(|one| is_anchor(*one, meta))
            };
            if beside.map_err(failed)?.items.iter().any(|map| is_other(&map.metadata)) {
                return Ok(None);
            }
            let preconditions =
                Preconditions { uid: found.metadata.uid, resource_version: found.metadata.resource_version };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
            match namespaces.delete(&self.namespace, &params).await {
                Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => {}
                deleted => drop(deleted.map_err(failed)?),
            }
        }
        let why = stuck(found.status.and_then(|status| status.conditions).unwrap_or_default());
        Ok(Some(format!("Namespace {}{why}", self.namespace)))
    }

    /// Whether the operator created the namespace with `meta` for the owner of `proof`. One without
    /// a mark is of an earlier version or of the Go operator.
    fn has_created(&self, meta: &ObjectMeta, proof: &Proof) -> bool {
        if let Some(mark) = annotation(meta, OWNER_DIGEST) {
            return proof.marks.iter().any(|known| known == mark);
        }
        let (created, value) = takeover::CREATED_ANNOTATION;
        let own = &self.base["metadata"]["labels"];
        let has_label = |name: &&str| label(meta, name) == own[*name].as_str();
        let mut managers = meta.managed_fields.iter().flatten().map(|entry| entry.manager.as_deref());
        let is_own =
            managers.any(|manager| manager == Some(FIELD_MANAGER)) && [MANAGED_BY, CR_NAME].iter().all(has_label);
        proof.unmarked && (is_own || annotation(meta, created) == Some(value))
    }
}

/// Why a namespace is not gone yet, as its `conditions` tell, which may have any size.
fn stuck(conditions: Vec<NamespaceCondition>) -> String {
    let reasons = conditions.into_iter().filter(|condition| condition.status == "True").take(MAX_CONDITIONS);
    let text = |condition: NamespaceCondition| clip(&condition.message.unwrap_or(condition.type_), MAX_CONDITION);
    let reasons: Vec<String> = reasons.map(text).collect();
    if reasons.is_empty() { String::new() } else { format!(" ({})", reasons.join("; ")) }
}

/// Selects anchors, and ConfigMaps of inventories.
fn selector() -> String {
    format!("{MANAGED_BY}={FIELD_MANAGER},{CR_NAME}")
}

/// Whether `meta` is that of an anchor of `component`, or of the ConfigMap of an inventory.
fn is_anchor(component: Component, meta: &ObjectMeta) -> bool {
    let resource = label(meta, CR_NAME).unwrap_or_default();
    let (name, is_marked) = (meta.name.as_deref(), annotation(meta, ANCHOR).or(annotation(meta, OWNER)).is_some());
    (is_marked && name == Some(&name::anchor(component, resource)))
        || name == Some(&name::inventory(component, resource))
}

fn label<'m>(meta: &'m ObjectMeta, name: &str) -> Option<&'m str> {
    meta.labels.as_ref()?.get(name).map(String::as_str)
}

fn annotation<'m>(meta: &'m ObjectMeta, name: &str) -> Option<&'m str> {
    meta.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Treats 404 as success: the object is gone.
fn ignore_not_found(outcome: kube::Result<()>) -> kube::Result<()> {
    match outcome {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        other => other,
    }
}
