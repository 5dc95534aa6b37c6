//! The Leases (`coordination.k8s.io/v1`): one per shard.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::{patch_as, post_as};
use knative_operator_shared::label::FIELD_MANAGER;
use kube::api::{ListParams, ObjectMeta, Patch};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::election::{LeaseRecord, Timing};
use super::share::{Shard, ShardChanges, plan_changes};
use crate::diagnostics::leases::Leases;
use knative_operator_objects::version;
use knative_operator_runtime::fence::Fence;

/// The defaults of client-go.
const TIMING: Timing =
    Timing { lease: Duration::from_secs(15), deadline: Duration::from_secs(10), retry: Duration::from_secs(2) };
/// Time limit of a request, half of the deadline (as in client-go): one on a connection that is
/// dead leaves time for another.
pub const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
/// Delay before a failed renewal is tried again.
const RETRY: Duration = Duration::from_millis(250);
/// Label of every Lease, with the number of shards as value.
pub const SHARDS: &str = "operator.knative.dev/shards";
/// Annotation with the replica that requests the shard.
const WANTED: &str = "operator.knative.dev/wanted-by";

/// Settings of leader election.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the Leases.
    pub namespace: String,
    /// Name of the Lease; the prefix of their names with several shards.
    pub name: String,
    /// Name of this candidate, unique among the replicas.
    pub identity: String,
    /// Number of shards of the fleet.
    pub shards: u32,
    /// Lets writes pass after each renewal.
    pub fence: Fence,
    /// What `/debug` shows of the Leases.
    pub shown: Leases,
}

/// A change of the shards of this replica.
pub enum ShardEvent {
    /// The replica acquired the shard.
    Acquired(u32),
    /// The replica has to release the shard: another may acquire it once this is answered.
    Release(u32, oneshot::Sender<()>),
}

/// A Lease that this candidate holds.
struct HeldLease {
    lease: Lease,
    renewed: Instant,
}

/// A candidate.
struct Candidate {
    leases: Api<Lease>,
    settings: Settings,
    events: mpsc::Sender<ShardEvent>,
    leases_held: BTreeMap<u32, HeldLease>,
    observed: BTreeMap<u32, (LeaseRecord, Instant)>,
    /// Time at which the candidate started, as the age of shards without a Lease.
    started: Instant,
    /// Whether this process has to end: the hub was restored to an earlier state, or another
    /// replica holds a Lease of this one.
    is_over: AtomicBool,
}

/// Holds a fair share of the shards and reports changes, until `stop` (true) or until a Lease is
/// lost (false). A process that could not renew in time must end immediately, as another replica
/// may take over.
pub async fn run(
    client: Client,
    settings: Settings,
    stop: CancellationToken,
    events: mpsc::Sender<ShardEvent>,
) -> bool {
    let leases = Api::<Lease>::namespaced(client, &settings.namespace);
    let mut candidate = Candidate {
        leases,
        settings,
        events,
        leases_held: BTreeMap::new(),
        observed: BTreeMap::new(),
        started: Instant::now(),
        is_over: AtomicBool::new(false),
    };
    loop {
        let deadline = candidate.leases_held.values().map(|lease| lease.renewed + TIMING.deadline).min();
        let tick = async {
            match deadline {
                Some(deadline) => tokio::time::timeout_at(deadline.into(), candidate.tick()).await.unwrap_or(Ok(())),
                None => candidate.tick().await,
            }
        };
        let outcome = tick.await;
        if let Err(error) = &outcome {
            tracing::warn!(error = error_text(error), "failed to read or renew Leases");
        }
        if let Some((shard, _)) =
            candidate.leases_held.iter().find(|(_, lease)| lease.renewed.elapsed() >= TIMING.deadline)
        {
            tracing::error!(shard, seconds = TIMING.deadline.as_secs(), "the Lease could not be renewed in time");
            return false;
        }
        if candidate.is_over.load(Ordering::Relaxed) {
            return false;
        }
        let delay = match (candidate.leases_held.is_empty(), outcome) {
            // Replicas that yield to each other try again at different times.
            (true, _) => TIMING.retry + jitter(),
            (false, Ok(())) => TIMING.retry,
            (false, Err(_)) => RETRY,
        };
        tokio::select! {
            () = tokio::time::sleep(delay) => {}
            () = stop.cancelled() => {
                let shards: Vec<u32> = candidate.leases_held.keys().copied().collect();
                candidate.release(&shards).await;
                return true;
            }
        }
    }
}

/// Up to a quarter of a second.
fn jitter() -> Duration {
    Duration::from_millis(fastrand::u64(..250))
}

impl Candidate {
    fn name(&self, shard: u32) -> String {
        let Settings { name, shards, .. } = &self.settings;
        if *shards == 1 { name.clone() } else { format!("{name}-{shard}-of-{shards}") }
    }

    /// Renews the Leases. With several shards, lists all and acquires, requests and releases
    /// shards.
    async fn tick(&mut self) -> kube::Result<()> {
        // At once: one after another would take longer than the deadline if the hub is slow.
        let renewals = self.leases_held.iter().map(|(shard, one)| self.renew(*shard, &one.lease));
        let mut failed = None;
        for renewed in futures::future::join_all(renewals).await {
            match renewed {
                Ok(Some((shard, lease))) => self.hold(shard, lease),
                Ok(None) => {}
                Err(error) => failed = Some(error),
            }
        }
        if let Some(error) = failed {
            return Err(error);
        }
        if self.settings.shards == 1 && !self.leases_held.is_empty() {
            return Ok(());
        }
        let listed = self.leases.list(&ListParams::default().labels(SHARDS)).await?.items;
        let (ours, others): (Vec<_>, Vec<_>) =
            listed.into_iter().partition(|lease| shard_count(lease) == Some(self.settings.shards));
        let now = Instant::now();
        if self.leases_held.is_empty() && self.has_holder(&others, now) {
            // Replicas with another number of shards are running: two replicas would manage the
            // same spoke.
            return Ok(());
        }
        let mut found: BTreeMap<String, Lease> =
            ours.into_iter().filter_map(|lease| Some((lease.metadata.name.clone()?, lease))).collect();
        let mut all = BTreeMap::new();
        let mut leases = BTreeMap::new();
        for shard in 0..self.settings.shards {
            let lease = found.remove(&self.name(shard));
            let (record, since) = match (lease.as_ref().map(record), self.observed.get(&shard).cloned()) {
                (Some(record), Some((observed, since))) if observed == record => (Some(record), since),
                (Some(record), _) => {
                    if record.holder != self.settings.identity {
                        self.settings.shown.renewed(self.name(shard), &record.holder, false);
                    }
                    self.observed.insert(shard, (record.clone(), now));
                    (Some(record), now)
                }
                // Somebody deleted the Lease: its holder goes on until it can't renew it.
                (None, Some((observed, since))) if observed.holder != self.settings.identity => (Some(observed), since),
                (None, _) => (None, self.started),
            };
            let wanted = lease.as_ref().and_then(|l| l.metadata.annotations.as_ref()?.get(WANTED).cloned());
            all.insert(shard, Shard { record, wanted, since });
            if let Some(lease) = lease {
                leases.insert(shard, lease);
            }
        }
        let ShardChanges { acquire, release, request } = plan_changes(&self.settings.identity, &all, now);
        for shard in acquire {
            self.acquire(shard, leases.remove(&shard)).await?;
        }
        if let Some(shard) = request.filter(|shard| leases.contains_key(shard)) {
            let patch = json!({"metadata": {"annotations": {WANTED: self.settings.identity}}});
            self.leases.patch(&self.name(shard), &patch_as(FIELD_MANAGER), &Patch::Merge(patch)).await?;
        }
        self.release(&release).await;
        Ok(())
    }

    /// Whether a replica holds one of `leases`.
    fn has_holder(&mut self, leases: &[Lease], now: Instant) -> bool {
        // Stored after the shards.
        leases.iter().zip(self.settings.shards..).any(|(lease, place)| {
            let record = record(lease);
            let since = match self.observed.get(&place) {
                Some((observed, since)) if *observed == record => *since,
                _ => now,
            };
            let is_held = !record.holder.is_empty() && now.duration_since(since) < record.lease;
            self.observed.insert(place, (record, since));
            is_held
        })
    }

    /// Renews a Lease from its last written state, which takes one request; `None` if another
    /// replica has it.
    async fn renew(&self, shard: u32, stored: &Lease) -> kube::Result<Option<(u32, HeldLease)>> {
        let (started, name) = (Instant::now(), self.name(shard));
        let mut lease = stored.clone();
        if let Some(spec) = lease.spec.as_mut() {
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        let written = match self.leases.replace(&name, &post_as(FIELD_MANAGER), &lease).await {
            // Another replica has requested or taken it.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let found = self.leases.get(&name).await?;
                if version(&found.metadata) < version(&stored.metadata) {
                    tracing::error!("the cluster has an earlier state than before, as after a restore of etcd");
                    // What the watches know may never become true: the process starts again.
                    self.is_over.store(true, Ordering::Relaxed);
                    return Ok(None);
                }
                if record(&found).holder != self.settings.identity {
                    tracing::error!(lease = name, "another replica holds the Lease");
                    // At once: if somebody deleted the Lease, its time is not over yet.
                    self.is_over.store(true, Ordering::Relaxed);
                    return Ok(None);
                }
                lease.metadata = found.metadata;
                self.leases.replace(&name, &post_as(FIELD_MANAGER), &lease).await?
            }
            other => other?,
        };
        Ok(Some((shard, HeldLease { lease: written, renewed: started })))
    }

    fn hold(&mut self, shard: u32, lease: HeldLease) {
        self.settings.shown.renewed(self.name(shard), &self.settings.identity, true);
        self.leases_held.insert(shard, lease);
        self.settings.fence.renewed(self.leases_held.values().map(|lease| lease.renewed).min());
    }

    /// Acquires a Lease, unless another replica is faster.
    async fn acquire(&mut self, shard: u32, lease: Option<Lease>) -> kube::Result<()> {
        let (started, name, now) = (Instant::now(), self.name(shard), MicroTime(Timestamp::now()));
        let before = lease.as_ref().and_then(|l| l.spec.as_ref()?.lease_transitions);
        let spec = LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            lease_duration_seconds: i32::try_from(TIMING.lease.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(before.unwrap_or_default().saturating_add(i32::from(lease.is_some()))),
            ..LeaseSpec::default()
        };
        let labels = labels(self.settings.shards);
        let written = if let Some(mut lease) = lease {
            lease.spec = Some(spec);
            lease.metadata.labels.get_or_insert_default().extend(labels.clone());
            if let Some(annotations) = lease.metadata.annotations.as_mut() {
                annotations.remove(WANTED);
            }
            // The object has the resourceVersion that was read, so a concurrent write makes this
            // one fail.
            self.leases.replace(&name, &post_as(FIELD_MANAGER), &lease).await
        } else {
            let metadata =
                ObjectMeta { name: Some(name.clone()), labels: Some(labels.clone()), ..ObjectMeta::default() };
            self.leases.create(&post_as(FIELD_MANAGER), &Lease { metadata, spec: Some(spec) }).await
        };
        match written {
            Ok(lease) => {
                if self.leases_held.is_empty() {
                    let others = self.has_others().await;
                    if !matches!(others, Ok(false)) {
                        // A replica with another number of shards was faster, or may have been.
                        self.give_up(&name, lease).await;
                        return others.map(drop);
                    }
                }
                tracing::info!(identity = self.settings.identity, lease = name, "leading");
                self.hold(shard, HeldLease { lease, renewed: started });
                // The receiver is gone only while the process ends.
                let _ = self.events.send(ShardEvent::Acquired(shard)).await;
                Ok(())
            }
            // Another replica was faster; or the Lease is older than the label, and so was not
            // listed.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                if let Some(found) = self.leases.get_opt(&name).await?.filter(|l| shard_count(l).is_none()) {
                    let labeled =
                        json!({"metadata": {"labels": labels, "resourceVersion": found.metadata.resource_version}});
                    self.leases.patch(&name, &patch_as(FIELD_MANAGER), &Patch::Merge(labeled)).await?;
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Releases `shards` once their actors have ended, so that the next holder need not wait for
    /// the Lease to expire.
    async fn release(&mut self, shards: &[u32]) {
        let mut answers = Vec::new();
        for shard in shards {
            let (answer, answered) = oneshot::channel();
            if self.events.send(ShardEvent::Release(*shard, answer)).await.is_ok() {
                answers.push(answered);
            }
        }
        for answered in answers {
            let _ = answered.await;
        }
        for shard in shards.iter().copied().collect::<BTreeSet<_>>() {
            let Some(HeldLease { lease, .. }) = self.leases_held.remove(&shard) else { continue };
            self.settings.fence.renewed(self.leases_held.values().map(|lease| lease.renewed).min());
            self.give_up(&self.name(shard), lease).await;
        }
    }

    /// Writes that the Lease `name` has no holder.
    async fn give_up(&self, name: &str, mut lease: Lease) {
        if let Some(spec) = lease.spec.as_mut() {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
        }
        // With the last written resourceVersion: if that fails, the Lease expires.
        if let Err(error) = self.leases.replace(name, &post_as(FIELD_MANAGER), &lease).await {
            tracing::debug!(error = error_text(&error), lease = name, "failed to release the Lease");
        }
    }

    /// Whether a replica with another number of shards holds a Lease: two of them that start at the
    /// same time see each other only after both have acquired one.
    async fn has_others(&mut self) -> kube::Result<bool> {
        let listed = self.leases.list(&ListParams::default().labels(SHARDS)).await?.items;
        let others: Vec<_> =
            listed.into_iter().filter(|lease| shard_count(lease) != Some(self.settings.shards)).collect();
        Ok(self.has_holder(&others, Instant::now()))
    }
}

/// Labels of a Lease of `shards` shards.
fn labels(shards: u32) -> BTreeMap<String, String> {
    BTreeMap::from([(SHARDS.to_owned(), shards.to_string())])
}

/// Number of shards in the label of a Lease.
fn shard_count(lease: &Lease) -> Option<u32> {
    lease.metadata.labels.as_ref()?.get(SHARDS)?.parse().ok()
}

fn record(lease: &Lease) -> LeaseRecord {
    let spec = lease.spec.as_ref();
    let seconds = spec.and_then(|s| s.lease_duration_seconds).and_then(|s| u64::try_from(s).ok());
    LeaseRecord {
        holder: spec.and_then(|s| s.holder_identity.clone()).unwrap_or_default(),
        // Only the holder renews it; a replica that requests it writes to it, too.
        version: spec.and_then(|s| s.renew_time.as_ref()).map(|t| t.0.to_string()).unwrap_or_default(),
        lease: seconds.map_or(TIMING.lease, Duration::from_secs),
    }
}

#[cfg(test)]
#[path = "lease_tests.rs"]
mod tests;
