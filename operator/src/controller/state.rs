//! The state of an actor between reconciles.

use std::sync::Arc;
use std::time::Instant;

use knative_operator_shared::api::{Knative, KnativeStatus};
use knative_operator_shared::label::APP_NAME;
use knative_operator_shared::version::Version;
use kube::Client;

use super::causes::Causes;
use super::draining::Draining;
use super::waited::Waited;
use super::warnings::Warnings;
use knative_operator_apply::anchor::InventoryStore;
use knative_operator_apply::claim::Anchor;
use knative_operator_apply::differ::Observation;
use knative_operator_apply::inventory::Inventory;
use knative_operator_apply::observed::ObservedState;
use knative_operator_apply::observer::{Observer, Watching};
use knative_operator_apply::proof::Proof;
use knative_operator_apply::throttle::Throttle;
use knative_operator_objects::plan::Plan;
use knative_operator_objects::{InstallationOwner, ObjectId, version};
use knative_operator_release::Release;

/// The target cluster of a resource.
#[derive(Clone)]
pub struct Cluster {
    /// Its client.
    pub client: Client,
    /// Changes when the connection is replaced; 0 is the local cluster.
    pub serial: u64,
    /// Its uid, if it could be read.
    pub uid: Option<Arc<str>>,
}

/// The anchor of an installation, or the ConfigMap of its inventory on the local cluster.
pub struct OwnedAnchor {
    /// Its identity and version.
    pub anchor: Anchor,
    /// The owner that it records: the resource.
    pub owner: InstallationOwner,
    /// The inventory in it.
    pub inventory: Inventory,
}

/// The anchor of another owner.
pub struct Occupied {
    /// The anchor.
    pub by: ObjectId,
    /// When it was read.
    pub at: Instant,
    /// Whose it is and what to do.
    pub message: String,
}

impl OwnedAnchor {
    /// What an object shows that is part of the installation of `resource`. An earlier version or
    /// the Go operator may have installed some, which have no mark.
    pub fn proof(&self, resource: &Knative) -> Proof {
        let is_remote = resource.common().cluster_profile_ref.is_some();
        let owner = if is_remote { self.anchor.uid.clone() } else { self.owner.uid.clone() };
        Proof {
            // Elsewhere, as on the local cluster, the anchor may be in a namespace of users.
            marks: if is_remote && resource.target_namespace() == resource.component().canonical() {
                self.owner.marks()
            } else {
                vec![self.owner.mark()]
            },
            former: self.owner.marks(),
            component: resource.component(),
            owner,
            unmarked: (is_remote && self.owner.adopted) || resource.has_installed(),
            unlabeled: false,
        }
    }
}

/// The plan of an installation, with its inputs.
pub struct Planned {
    /// Generation of the resource.
    pub generation: Option<i64>,
    /// Version.
    pub version: Version,
    /// Uid of the inventory store.
    pub uid: String,
    /// Released objects.
    pub release: Release,
    /// Desired objects.
    pub plan: Plan,
}

/// State of an actor between reconciles. All of it can be rebuilt from the clusters.
#[derive(Default)]
pub struct ReconcilerState {
    /// The watches on the target cluster, with the serial of its connection.
    pub observer: Option<(u64, Observer)>,
    /// The anchor that this resource owns.
    pub anchor: Option<OwnedAnchor>,
    /// The anchor of another owner, which is watched.
    pub occupied: Option<Occupied>,
    /// The plan of the last reconcile.
    pub planned: Option<Planned>,
    /// Recent repairs and refused writes.
    pub throttle: Throttle,
    /// Whether the cluster may be unreachable.
    pub suspect: bool,
    /// Whether the status reports that the connection is being rebuilt.
    pub rebuilding: bool,
    /// The last written status, with its resourceVersion.
    pub written_status: Option<(u64, KnativeStatus)>,
    /// Whether a status write leaves what it lacks, since the stored status can't be read.
    pub keeps_status: bool,
    /// Time of that write.
    pub written_at: Option<Instant>,
    /// The last observed generation, and when it was new.
    pub observed_generation: Option<(i64, Instant)>,
    /// Since when the status is older than the spec.
    pub behind_since: Option<Instant>,
    /// Time of the last status that reports a running Go operator.
    pub go_operator_reported_at: Option<Instant>,
    /// Whether the installation stays in the namespace that the Go operator used on the spoke, once
    /// that is known.
    pub stays_in_own_namespace: Option<bool>,
    /// Uid of the target cluster, once it is known.
    pub cluster_uid: Option<Arc<str>>,
    /// Uid of the cluster that the author of the resource was permitted to use.
    pub permitted_on: Option<Arc<str>>,
    /// When this actor created the namespace on the spoke.
    pub created_namespace_at: Option<Instant>,
    /// What others had put into the namespace on the spoke before, if the operator looked.
    pub namespace_contents: Option<String>,
    /// The `spec.version` that the record on the cluster does not allow; empty if it allows it.
    pub refused_version: Option<String>,
    /// The generation of the resource, if the record on the cluster allows its version, during a
    /// reconcile.
    pub allowed_generation: Option<i64>,
    /// How often the cluster was another one than before, and when last.
    pub moves: Option<(u32, Instant)>,
    /// How long a deletion waits for what goes with deleted objects of users.
    pub going: Waited,
    /// Objects left to delete, during a deletion.
    pub remaining: Option<Inventory>,
    /// The uid of the cluster that they are on.
    pub remaining_on: Option<Arc<str>>,
    /// Kinds that could not be looked at, for people.
    pub unseen: String,
    /// Why they may not be all, for people.
    pub excess: Option<String>,
    /// Number of checks of the deletion since an object was gone.
    pub idle_checks: u32,
    /// The Pods that a deletion waits for.
    pub draining: Draining,
    /// Why workloads are not available.
    pub causes: Causes,
    /// The generation and version whose installation was announced.
    pub announced: Option<String>,
    /// The warnings that were published.
    pub warnings: Warnings,
}

impl ReconcilerState {
    /// The watches on `cluster`. For another connection than before, restarts them and resets what
    /// depends on the cluster.
    pub fn observer_on(&mut self, watching: &Watching, cluster: &Cluster, resource: &Knative) -> &mut Observer {
        if self.observer.as_ref().is_none_or(|(serial, _)| *serial != cluster.serial) {
            self.observer = None;
            self.anchor = None;
            self.occupied = None;
            self.planned = None;
            self.causes = Causes::default();
            self.throttle.forget_refusals();
        }
        let start = || {
            let selector = format!("{APP_NAME}={}", resource.component().canonical());
            (cluster.serial, Observer::new(cluster.client.clone(), &selector, watching))
        };
        &mut self.observer.get_or_insert_with(start).1
    }

    /// What is left after a panic: what else it has may be inconsistent.
    pub fn after_panic(&mut self) -> Self {
        Self { written_status: self.written_status.take(), written_at: self.written_at, ..Self::default() }
    }

    /// Forgets what it knows of a cluster.
    pub fn forget_cluster(&mut self) {
        (self.observer, self.anchor, self.occupied, self.planned) = (None, None, None, None);
        (self.stays_in_own_namespace, self.namespace_contents, self.created_namespace_at) = (None, None, None);
        (self.announced, self.causes) = (None, Causes::default());
        self.interrupt_deletion();
        self.throttle = Throttle::default();
    }

    /// The cluster is away: the deletion begins again afterwards, and its wait goes on.
    pub fn interrupt_deletion(&mut self) {
        self.remaining = None;
        self.going.interrupt();
    }

    /// A deleted or recreated anchor owns nothing: everything is applied again with the current
    /// one. One that somebody else wrote may have another owner.
    pub fn drop_lost_anchor(&mut self, store: &InventoryStore, observed: &ObservedState) {
        let Some(OwnedAnchor { anchor, .. }) = &self.anchor else { return };
        let id = store.id();
        if observed.has_changed_since(&id, &anchor.uid, anchor.version)
            || observed.has_foreign_mark()
            || matches!(observed.observation(&id), Observation::Missing { .. })
        {
            self.anchor = None;
        }
    }

    /// Records a change of the spec.
    pub fn observe_generation(&mut self, resource: &Knative) {
        let generation = resource.meta().generation.unwrap_or_default();
        if self.observed_generation.is_none_or(|(known, _)| known != generation) {
            self.observed_generation = Some((generation, Instant::now()));
        }
    }

    /// The current status: the last written one, until the watch reports a newer one. After a
    /// restore of the hub, whose resourceVersions may begin again, the stored one.
    pub fn status(&self, resource: &Knative) -> KnativeStatus {
        match &self.written_status {
            Some((written_status, status))
                if *written_status > version(resource.meta())
                    && status.observed_generation <= resource.meta().generation =>
            {
                status.clone()
            }
            _ => resource.status().cloned().unwrap_or_default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use knative_operator_apply::error::ApplyError;
    use knative_operator_objects::Digest;
    use knative_operator_shared::api::KnativeServing;
    use kube::client::Body;

    use super::*;

    #[tokio::test]
    async fn what_was_refused_before_says_nothing_about_another_connection() {
        let answer = |_: http::Request<Body>| async { Err::<http::Response<Body>, _>("no answer") };
        let client = Client::new(tower::service_fn(answer), "n");
        let (resource, watching) = (Knative::Serving(KnativeServing::default()), Watching::default());
        let now = Instant::now();
        let on = |serial| Cluster { client: client.clone(), serial, uid: None };
        let (id, why) = (ObjectId::new("", "ConfigMap", "n", "a"), ApplyError::Other("no".to_owned()));
        let refuse = |state: &mut ReconcilerState| state.throttle.record_refusal(&id, &Digest::of("1"), &why, now);
        let is_refused = |state: &ReconcilerState| state.throttle.next_due(now).is_some();
        let mut state = ReconcilerState::default();
        state.observer_on(&watching, &on(1), &resource);
        refuse(&mut state);
        state.observer_on(&watching, &on(1), &resource);
        assert!(is_refused(&state), "it is the same connection");
        state.observer_on(&watching, &on(2), &resource);
        assert!(!is_refused(&state));
        refuse(&mut state);
        state.forget_cluster();
        assert!(!is_refused(&state));
    }
}
