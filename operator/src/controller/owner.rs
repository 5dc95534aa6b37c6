//! Makes a resource the owner of its installation, or tells who is.

use std::time::{Duration, Instant};

use knative_operator_runtime::error_text;
use knative_operator_shared::api::{Component, Knative};
use knative_operator_shared::label::{OWNER, TAKE_OVER};
use knative_operator_shared::version::Version;
use kube::core::{ApiResource, GroupVersionKind};
use serde_json::Value;

use super::context::Context;
use super::finalizers::add_finalizer;
use super::go_inventory::Intended;
use super::moved;
use super::state::{Cluster, Occupied, OwnedAnchor, ReconcilerState};
use super::{apply_events, author};
use knative_operator_apply::anchor::{InventoryStore, Stored};
use knative_operator_apply::claim::{Anchor, Claimant, Installed, Record, Step};
use knative_operator_apply::store_error::StoreError;
use knative_operator_objects::{AppliedVersion, InstallationOwner, Kind, ObjectId, ResourceKey};

/// Minimum interval of looks at other anchors, which others can change as often as they want.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// Maximum number of steps of a claim. More means that others write all the time.
const MAX_STEPS: usize = 12;

/// A resource that wants to own its installation.
pub struct Ownership<'a> {
    /// Shared by all actors.
    pub cx: &'a Context,
    /// The resource.
    pub resource: &'a Knative,
    /// Its cluster.
    pub cluster: &'a Cluster,
    /// Its anchor.
    pub store: &'a InventoryStore,
    /// What it applies, if it becomes the owner.
    pub applied: AppliedVersion,
    /// A version in the record that the cluster doesn't have.
    pub disproved: Option<&'a Version>,
}

/// The anchor of an owner.
pub struct Claimed {
    /// The anchor.
    pub owned: OwnedAnchor,
    /// Whether it is new.
    pub is_created: bool,
}

/// Why a resource doesn't own its installation.
pub enum Unclaimed {
    /// Another one owns it; for people.
    Occupied(String),
    /// Somebody else may have installed it there; for people.
    Used(String),
    /// The cluster has this version, which the wanted one may not follow, for this reason.
    Ineligible(Version, String),
    /// Its author may not use the cluster; for people.
    NotPermitted(String),
    /// The anchor can't be read or written.
    Store(StoreError),
    /// Something else failed.
    Failed(String),
}

impl From<StoreError> for Unclaimed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

/// The key of `owner`, if it is a resource of this hub.
fn own_key(cx: &Context, owner: &InstallationOwner) -> Option<ResourceKey> {
    let component = Component::ALL.into_iter().find(|component| component.kind() == owner.kind)?;
    let is_own = owner.hub == cx.hub_identity.uid;
    is_own.then(|| ResourceKey { component, namespace: owner.namespace.clone(), name: owner.name.clone() })
}

/// Whether `owner` is a resource of this hub that doesn't exist.
fn is_abandoned(cx: &Context, owner: &InstallationOwner) -> bool {
    cx.registry.is_listed() && own_key(cx, owner).is_some_and(|key| !cx.registry.contains(&key))
}

/// The last look at another owner's anchor, if it was a moment ago and the anchor is watched: the
/// message, and when to look again.
pub fn recent_look(state: &ReconcilerState) -> Option<(String, Duration)> {
    let occupied = state.occupied.as_ref().filter(|_| state.observer.is_some())?;
    let rest = LOOK_INTERVAL.checked_sub(occupied.at.elapsed())?;
    Some((occupied.message.clone(), rest))
}

impl Ownership<'_> {
    /// Becomes the owner. A new anchor has the inventory `intended`; a new namespace is made from
    /// `namespace`.
    pub async fn claim(
        &self,
        state: &mut ReconcilerState,
        namespace: &Value,
        intended: &Intended,
    ) -> Result<Claimed, Unclaimed> {
        let client = &self.cluster.client;
        let (mut own, mut looked) = self.look().await?;
        let (mut is_created, mut has_finalizer) = (false, false);
        // Also on another cluster of the same ClusterProfile.
        let has_installed = self.resource.has_installed() || moved::has_installed_elsewhere(self.resource);
        for _ in 0..MAX_STEPS {
            let claimant = self.claimant(own.as_ref());
            // Also of a confirmed owner, once: its record may be forged.
            let others = match looked.take() {
                Some(others) => others,
                None if self.is_confirmed(own.as_ref()) => Vec::new(),
                None => self.others(&claimant.me).await?.0,
            };
            let step = claimant.step(own.as_ref().map(|own| &own.anchor), &others);
            if matches!(step, Step::Record(_) | Step::Proceed)
                && let Some((version, why)) = own.as_ref().and_then(|own| self.objection(&own.anchor))
            {
                return Err(Unclaimed::Ineligible(version, why));
            }
            // A record alone shows nothing: others may write it.
            let uid = self.cluster.uid.as_deref();
            let is_proven = matches!(step, Step::Proceed) && author::was_permitted(self.resource, uid);
            if matches!(step, Step::Create(_) | Step::Record(_) | Step::Proceed) && !has_finalizer && !is_proven {
                self.permit(state, has_installed).await?;
                has_finalizer = true;
            }
            match (step, &own) {
                // The garbage collector deletes what refers to an anchor that is gone, and removes
                // the references to one that leaves its dependents.
                (Step::Proceed | Step::Record(_), Some(Stored { terminating: Some(finalizers), .. })) => {
                    let why = format!("{} is being deleted; waiting for its finalizers: {finalizers}", self.store.id());
                    return Err(Unclaimed::Failed(why));
                }
                (Step::Proceed, Some(stored)) => {
                    let Record::Owner(owner) = &stored.anchor.record else { continue };
                    let (anchor, owner) = (stored.anchor.clone(), owner.clone());
                    state.occupied = None;
                    if let Some(ignored) = claimant.ignored(&anchor, &others) {
                        apply_events::publish_ignored(&self.cx.events, self.resource, ignored);
                    }
                    let owned = OwnedAnchor { anchor, owner, inventory: stored.inventory()? };
                    return Ok(Claimed { owned, is_created });
                }
                (Step::Create(owner), _) => {
                    let created = self.create(state, namespace, intended, owner).await?;
                    is_created = created.is_some();
                    own = match created {
                        Some(created) => Some(created),
                        None => self.store.load(client).await?,
                    };
                }
                (Step::Record(owner), Some(stored)) => {
                    own = match self.store.record(client, stored, &owner).await {
                        Err(error) if error.is_conflict() => self.store.load(client).await?,
                        recorded => {
                            self.report_replaced(stored, &owner);
                            Some(recorded?)
                        }
                    };
                }
                (Step::Withdraw, Some(stored)) => {
                    match self.store.delete(client, &stored.anchor).await {
                        Err(error) if !error.is_conflict() => return Err(error.into()),
                        _ => own = self.store.load(client).await?,
                    }
                    is_created = false;
                }
                (Step::Wait(anchor), _) => return Err(self.occupied(state, &anchor)),
                (Step::Proceed | Step::Record(_) | Step::Withdraw, None) => own = self.store.load(client).await?,
            }
        }
        let id = self.store.id();
        Err(Unclaimed::Failed(format!("{id} changes all the time, so its owner can't be recorded")))
    }

    /// Asks whether the author may install on the cluster, unless the resource `has_installed`, and
    /// adds the finalizer. It comes with the first object, so that a resource without installation
    /// is deleted immediately.
    async fn permit(&self, state: &mut ReconcilerState, has_installed: bool) -> Result<(), Unclaimed> {
        if let Some(authors) = self.cx.authors.as_ref().filter(|_| !has_installed) {
            let objection = authors.objection(self.resource).await;
            if let Some(why) = objection.map_err(|e| Unclaimed::Failed(e.to_string()))? {
                return Err(Unclaimed::NotPermitted(why));
            }
        }
        state.permitted_on.clone_from(&self.cluster.uid);
        let added = add_finalizer(self.cx, self.resource).await;
        added.map_err(|e| Unclaimed::Failed(format!("cannot add the finalizer: {}", error_text(&e))))
    }

    /// Creates the anchor of `owner`, and on a spoke its namespace; `None` if there is an anchor.
    async fn create(
        &self,
        state: &mut ReconcilerState,
        namespace: &Value,
        intended: &Intended,
        owner: InstallationOwner,
    ) -> Result<Option<Stored>, Unclaimed> {
        let client = &self.cluster.client;
        if self.store.is_remote() {
            if self.store.create_namespace(client, namespace, &owner).await? {
                state.created_namespace_at = Some(Instant::now());
            } else if state.created_namespace_at.is_none() {
                self.look_into_namespace(state).await?;
            }
        }
        let inventory = intended.get(self.cx, self.resource).map_err(|e| Unclaimed::Failed(e.to_string()))?;
        let owner = InstallationOwner { applied: Some(self.applied.clone()), ..owner };
        Ok(self.store.create(client, &owner, inventory).await?)
    }

    /// The version that the cluster has, as the own `anchor` records, and why the wanted one may
    /// not follow it: the hub may be older, restored from a backup.
    fn objection(&self, anchor: &Anchor) -> Option<(Version, String)> {
        let Record::Owner(owner) = &anchor.record else { return None };
        let objection = owner.objection(&self.applied, self.resource.has_installed());
        let objection = objection.filter(|(known, _)| self.disproved != Some(known));
        // That of a former owner is looked at after the take-over.
        objection.filter(|_| anchor.is_of(&self.cx.owner(self.resource)))
    }

    /// The own anchor, and those of others. A resource that has installed nothing has no anchor, so
    /// its own is read only if there may be one: a first install takes one request less.
    async fn look(&self) -> Result<(Option<Stored>, Option<Vec<Anchor>>), Unclaimed> {
        let client = &self.cluster.client;
        let (others, may_exist) = match self.others(&self.cx.owner(self.resource)).await {
            Ok(found) => found,
            // Anybody may write so many ConfigMaps that they can't be listed. What is installed
            // here stays its owner's.
            Err(error) => {
                let own = self.store.load(client).await?;
                let is_here = moved::installed(self.resource, self.cluster.uid.as_deref()) == Installed::Here;
                return if is_here && self.is_confirmed(own.as_ref()) {
                    Ok((own, Some(Vec::new())))
                } else {
                    Err(error.into())
                };
            }
        };
        let is_new = !self.resource.has_installed() && !self.has_finalizer() && others.is_empty();
        let own = if is_new && !may_exist { None } else { self.store.load(client).await? };
        // An own record that is not confirmed counts only beside others that are listed after it.
        let is_settled = own.is_none() || self.is_confirmed(own.as_ref());
        Ok((own, is_settled.then_some(others)))
    }

    /// The anchors of others, and whether the own one may exist.
    async fn others(&self, me: &InstallationOwner) -> Result<(Vec<Anchor>, bool), StoreError> {
        let local = self.cx.local_inventories(self.resource.component(), self.cluster);
        self.store.others(&self.cluster.client, me, &local).await
    }

    fn has_finalizer(&self) -> bool {
        let finalizer = self.resource.component().finalizer();
        self.resource.meta().finalizers.iter().flatten().any(|name| name == finalizer)
    }

    fn claimant(&self, own: Option<&Stored>) -> Claimant {
        let take_over = self.resource.annotation(TAKE_OVER).map(str::to_owned);
        let installed = moved::installed(self.resource, self.cluster.uid.as_deref());
        // The finalizer may be of the installation on another cluster.
        let is_first = !moved::has_former(self.resource);
        let has_begun = is_first && self.has_finalizer() && own.is_some_and(|own| own.names(self.resource));
        let is_abandoned = own.is_some_and(|own| match &own.anchor.record {
            Record::Owner(recorded) => is_abandoned(self.cx, recorded),
            Record::Absent | Record::Unreadable => false,
        });
        let me = self.cx.owner(self.resource);
        Claimant { me, installed, has_begun, is_abandoned, take_over }
    }

    /// Whether `own` needs no look at others.
    fn is_confirmed(&self, own: Option<&Stored>) -> bool {
        let me = self.cx.owner(self.resource);
        own.is_some_and(|own| own.anchor.is_confirmed() && own.anchor.is_of(&me))
    }

    fn report_replaced(&self, before: &Stored, owner: &InstallationOwner) {
        if let Record::Owner(before) = &before.anchor.record
            && !before.is_same(owner)
        {
            tracing::warn!(hub = before.hub, "took over the installation of another owner");
            let why = if before.released {
                "which was deleted and left it".to_owned()
            } else {
                format!("as the annotation {TAKE_OVER} asks")
            };
            let note = format!("Took over the installation from {before}, {why}");
            self.cx.events.warning(self.resource, "TookOver", note);
        }
    }

    /// Watches `anchor`, which is in the way, and tells whose it is and what to do.
    fn occupied(&self, state: &mut ReconcilerState, anchor: &Anchor) -> Unclaimed {
        let id = ObjectId::new("", "ConfigMap", &anchor.namespace, &anchor.name);
        if state.observer.is_none() || state.occupied.as_ref().is_none_or(|occupied| occupied.by != id) {
            // Nothing else is watched from now on.
            (state.observer, state.planned) = (None, None);
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "ConfigMap"));
            let kind = Kind { resource, namespaced: true };
            let observer = state.observer_on(&self.cx.watching, self.cluster, self.resource);
            observer.watch_one(&kind, &anchor.namespace, &anchor.name);
            self.tell_owner(anchor);
        }
        if anchor.namespace == self.resource.namespace() && id != self.store.id() {
            // The installation may have to stay there.
            state.stays_in_own_namespace = None;
        }
        let message = self.describe(anchor);
        state.occupied = Some(Occupied { by: id, at: Instant::now(), message: message.clone() });
        Unclaimed::Occupied(message)
    }

    /// Tells the owner that `anchor` records, if it is a resource of this hub, that this one waits.
    fn tell_owner(&self, anchor: &Anchor) {
        let Record::Owner(owner) = &anchor.record else { return };
        let found = own_key(self.cx, owner).and_then(|key| self.cx.registry.get(&key));
        if let Some(owner) = found.filter(|found| found.meta().uid.as_deref() == Some(owner.uid.as_str())) {
            let (component, namespace, name) =
                (self.resource.component(), self.resource.namespace(), self.resource.name());
            let note =
                format!("{component} {namespace}/{name} is for the same cluster, and waits until this one is deleted");
            self.cx.events.warning(&*owner, "OtherResourceWaits", note);
        }
    }

    /// Whose `anchor` is, and what to do.
    fn describe(&self, anchor: &Anchor) -> String {
        let (component, plural) = (self.resource.component(), self.resource.component().plural());
        let id = ObjectId::new("", "ConfigMap", &anchor.namespace, &anchor.name);
        let is_own = id == self.store.id();
        let annotate = |value: &str| {
            let (namespace, name) = (self.resource.namespace(), self.resource.name());
            // Uids and times have no other characters; one of a hostile API server may.
            let value: String = value.chars().filter(|c| c.is_ascii_alphanumeric() || "-:/.".contains(*c)).collect();
            format!("kubectl annotate --overwrite {plural} {name} -n {namespace} {TAKE_OVER}={value}")
        };
        match &anchor.record {
            Record::Owner(owner) if owner.released => {
                let place =
                    if self.store.is_remote() { String::new() } else { format!(" in namespace {}", anchor.namespace) };
                format!(
                    "{component} on this cluster was left there by {owner}, which was deleted. Create a {component} with the name {}{place}, \
                     which takes it up without a restart, and delete this one; or delete that one afterwards to uninstall it",
                    owner.name
                )
            }
            Record::Owner(owner) if !is_own && owner.is_same(&self.cx.owner(self.resource)) => format!(
                "{component} is installed in namespace {} of this cluster already, as {id} shows, and not a second time in namespace {}. \
                 Create the resource as it was, and delete it to uninstall there",
                anchor.namespace,
                self.resource.target_namespace()
            ),
            Record::Owner(owner) if is_abandoned(self.cx, owner) => {
                let way = if is_own { format!(", or: {}", annotate(&anchor.uid)) } else { String::new() };
                format!(
                    "{component} on this cluster belongs to {owner}, which no longer exists. Create it again, and delete it to uninstall{way}"
                )
            }
            Record::Owner(owner) if owner.hub == self.cx.hub_identity.uid => format!(
                "{component} on this cluster belongs to {owner}, which is left unchanged. Delete one of the two resources: \
                 this one installs as soon as the other one is gone"
            ),
            Record::Owner(owner) => {
                let was_replaced = owner.has_replaced(&self.cx.hub_identity.uid);
                let way = if is_own && was_replaced {
                    annotate(&format!("{}/{}", owner.hub, owner.since))
                } else if is_own {
                    annotate(&owner.hub)
                } else {
                    format!("create a resource with the name {} and take the installation over with it", owner.name)
                };
                format!(
                    "{component} on this cluster belongs to {owner}, which is left unchanged. Delete this resource, which changes nothing \
                     there; or, to move the installation to this hub: {way}"
                )
            }
            Record::Unreadable => format!(
                "{component} on this cluster has an owner that this version can't read, in the annotation {OWNER} of {id}. Install a newer \
                 version of the operator, or correct the annotation"
            ),
            Record::Absent => {
                let way =
                    if is_own { format!("; if it is this one's: {}", annotate(&anchor.uid)) } else { String::new() };
                format!(
                    "{id} shows an installation of {component} on this cluster, by the Go operator or version 0.2.0, whose owner is not recorded. \
                     Delete its resource first, on its hub{way}"
                )
            }
        }
    }
}
