//! What a deletion has to remove: the recorded objects, or, if the record is gone, those that show
//! that they belong to the installation.

use knative_operator_shared::api::Knative;

use super::context::Context;
use super::deletion_error::DeletionError;
use super::desired::Desired;
use super::go_inventory::go_operator_inventory;
use super::state::{Cluster, OwnedAnchor};
use knative_operator_apply::anchor::{InventoryStore, Stored};
use knative_operator_apply::claim::Record;
use knative_operator_apply::inventory::Inventory;
use knative_operator_apply::proof::Proof;
use knative_operator_apply::remove;
use knative_operator_apply::sweep::{Swept, sweep};
use knative_operator_objects::InstallationOwner;

/// What the objects of the installation of `resource`, which is `me`, show.
pub fn proof(
    resource: &Knative,
    store: &InventoryStore,
    stored: Option<&Stored>,
    me: InstallationOwner,
    has_installed: bool,
) -> Proof {
    match stored.map(|stored| (&stored.anchor, &stored.anchor.record)) {
        Some((anchor, record)) => {
            let owner = if let Record::Owner(recorded) = record { recorded.clone() } else { me };
            let owned = OwnedAnchor { anchor: anchor.clone(), owner, inventory: Inventory::default() };
            // One without a record names this resource: an earlier version began to install.
            Proof { unmarked: has_installed || *record == Record::Absent, ..owned.proof(resource) }
        }
        None => Proof {
            marks: vec![me.mark()],
            former: Vec::new(),
            component: resource.component(),
            owner: if store.is_remote() { String::new() } else { me.uid },
            unmarked: has_installed,
            unlabeled: false,
        },
    }
}

/// Finds out what is installed.
pub struct Lookup<'a> {
    /// Shared by all actors.
    pub cx: &'a Context,
    /// The resource.
    pub desired: &'a Desired,
    /// Its cluster.
    pub cluster: &'a Cluster,
    /// Its anchor.
    pub store: &'a InventoryStore,
    /// The anchor as it was read.
    pub stored: Option<&'a Stored>,
    /// What its objects show.
    pub proof: &'a Proof,
}

impl Lookup<'_> {
    /// What is installed, and the kinds that could not be looked at.
    pub async fn inventory(&self) -> Result<(Inventory, String), DeletionError> {
        let Some(stored) = self.stored else { return self.found().await };
        let inventory = stored.inventory()?;
        if !inventory.entries.is_empty() {
            return Ok((inventory, String::new()));
        }
        if self.store.is_remote() {
            // Nothing was installed, or somebody emptied it.
            return self.found().await;
        }
        // The same, or the Go operator, which keeps no inventory, installed it: its objects follow
        // from the spec.
        if let Some(unreadable) = &self.desired.unreadable {
            return Err(DeletionError::Failed(unreadable.message.clone()));
        }
        Ok((go_operator_inventory(self.cx, &self.desired.resource).await?, String::new()))
    }

    /// The objects that show the proof. The record of the installation is gone: somebody deleted
    /// it, or the namespace with it.
    async fn found(&self) -> Result<(Inventory, String), DeletionError> {
        let Self { cx, desired, cluster, store, .. } = *self;
        let client = &cluster.client;
        let (resource, me) = (&*desired.resource, cx.owner(&desired.resource));
        // What has no mark may be of another owner.
        let local = cx.local_inventories(resource.component(), cluster);
        let (others, _) = store.others(client, &me, &local).await?;
        let proof = Proof { unmarked: self.proof.unmarked && others.is_empty(), ..self.proof.clone() };
        let Swept { mut inventory, unknown } = sweep(client, &proof).await?;
        if !store.is_remote()
            && desired.unreadable.is_none()
            && let Ok(of_go_operator) = go_operator_inventory(cx, resource).await
        {
            inventory.entries.extend(of_go_operator.entries);
        }
        let unknown = unknown.into_iter().collect::<Vec<_>>().join(", ");
        if self.proof.unmarked || !inventory.entries.is_empty() || !unknown.is_empty() {
            let count = inventory.entries.keys().filter(|id| !remove::is_retained(id)).count();
            let unseen = if unknown.is_empty() { String::new() } else { format!("; it could not look at {unknown}") };
            let note = format!(
                "{} with the list of the installed objects is gone. The operator looked for objects that this resource installed, and found \
                 {count}{unseen}",
                store.id()
            );
            cx.events.warning(resource, "InventoryMissing", note);
        }
        Ok((inventory, unknown))
    }
}
