//! The Leases themselves (`coordination.k8s.io/v1`): one a shard.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use knative_operator_runtime::identity::{patch_as, post_as};
use knative_operator_runtime::words;
use knative_operator_shared::label::FIELD_MANAGER;
use kube::api::{ListParams, ObjectMeta, Patch};
use kube::{Api, Client};
use serde_json::json;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::election::{Record, Timing};
use super::share::{Moves, Shard, moves};

const TIMING: Timing =
    Timing { lease: Duration::from_secs(12), deadline: Duration::from_secs(8), retry: Duration::from_secs(2) };
/// Label of every Lease: of which operator it is. Its value is the number of shards.
const SHARDS: &str = "operator.knative.dev/shards";
/// Annotation: who asks for a shard.
const WANTED: &str = "operator.knative.dev/wanted-by";

/// Which Leases, and who wants them.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the Leases.
    pub namespace: String,
    /// Name of the Lease, and the beginning of their names if there are several shards.
    pub name: String,
    /// Name of this candidate, which no other has.
    pub identity: String,
    /// How many shards the fleet has.
    pub shards: u32,
}

/// What changes.
pub enum Told {
    /// A shard is this replica's from now on.
    Gained(u32),
    /// A shard is to be given back: it may be another's as soon as this is answered.
    Yield(u32, oneshot::Sender<()>),
}

/// A shard that is held.
struct Held {
    lease: Lease,
    renewed: Instant,
}

/// One candidate.
struct Candidate {
    leases: Api<Lease>,
    settings: Settings,
    tell: mpsc::Sender<Told>,
    held: BTreeMap<u32, Held>,
    seen: BTreeMap<u32, (Record, Instant)>,
    /// When a shard was found to have no Lease.
    missing: Instant,
}

/// Holds a fair share of the shards, and tells which, until `stop` (true) or until one is lost (false): who could not renew in time must
/// end at once, as another one may begin.
pub async fn run(client: Client, settings: Settings, stop: CancellationToken, tell: mpsc::Sender<Told>) -> bool {
    let leases = Api::<Lease>::namespaced(client, &settings.namespace);
    let mut candidate =
        Candidate { leases, settings, tell, held: BTreeMap::new(), seen: BTreeMap::new(), missing: Instant::now() };
    loop {
        let deadline = candidate.held.values().map(|held| held.renewed + TIMING.deadline).min();
        let turn = async {
            match deadline {
                Some(deadline) => tokio::time::timeout_at(deadline.into(), candidate.turn()).await.unwrap_or(Ok(())),
                None => candidate.turn().await,
            }
        };
        if let Err(error) = turn.await {
            tracing::warn!(error = words(&error), "Leases not read or renewed");
        }
        if let Some((shard, _)) = candidate.held.iter().find(|(_, held)| held.renewed.elapsed() >= TIMING.deadline) {
            tracing::error!(shard, "the Lease could not be renewed for {:?}", TIMING.deadline);
            return false;
        }
        tokio::select! {
            () = tokio::time::sleep(TIMING.retry) => {}
            () = stop.cancelled() => {
                let held: Vec<u32> = candidate.held.keys().copied().collect();
                candidate.give(&held).await;
                return true;
            }
        }
    }
}

impl Candidate {
    fn name(&self, shard: u32) -> String {
        let Settings { name, shards, .. } = &self.settings;
        if *shards == 1 { name.clone() } else { format!("{name}-{shard}-of-{shards}") }
    }

    /// Renews what is held; where there is more than that, looks at all, and takes, asks for, and gives away what is due.
    async fn turn(&mut self) -> kube::Result<()> {
        for shard in self.held.keys().copied().collect::<Vec<_>>() {
            self.renew(shard).await?;
        }
        if self.settings.shards == 1 && !self.held.is_empty() {
            return Ok(());
        }
        let listed = self.leases.list(&ListParams::default().labels(SHARDS)).await?.items;
        let (ours, others): (Vec<_>, Vec<_>) =
            listed.into_iter().partition(|lease| number(lease) == Some(self.settings.shards));
        let now = Instant::now();
        if self.held.is_empty() && self.anybody(&others, now) {
            // Replicas of another number of shards are at work: two would look after the same spoke.
            return Ok(());
        }
        let mut found: BTreeMap<String, Lease> =
            ours.into_iter().filter_map(|lease| Some((lease.metadata.name.clone()?, lease))).collect();
        let mut all = BTreeMap::new();
        let mut leases = BTreeMap::new();
        for shard in 0..self.settings.shards {
            let lease = found.remove(&self.name(shard));
            let record = lease.as_ref().map(record);
            let since = match (&record, self.seen.get(&shard)) {
                (Some(record), Some((seen, since))) if seen == record => *since,
                (Some(record), _) => {
                    self.seen.insert(shard, (record.clone(), now));
                    now
                }
                (None, _) => self.missing,
            };
            let wanted = lease.as_ref().and_then(|l| l.metadata.annotations.as_ref()?.get(WANTED).cloned());
            all.insert(shard, Shard { record, wanted, since });
            if let Some(lease) = lease {
                leases.insert(shard, lease);
            }
        }
        let Moves { take, give, ask } = moves(&self.settings.identity, &all, now);
        for shard in take {
            self.take(shard, leases.remove(&shard)).await?;
        }
        if let Some(shard) = ask {
            let patch = json!({"metadata": {"annotations": {WANTED: self.settings.identity}}});
            self.leases.patch(&self.name(shard), &patch_as(FIELD_MANAGER), &Patch::Merge(patch)).await?;
        }
        self.give(&give).await;
        Ok(())
    }

    /// Whether anybody holds one of `leases`.
    fn anybody(&mut self, leases: &[Lease], now: Instant) -> bool {
        // By their own place in what was seen, behind the shards.
        leases.iter().zip(self.settings.shards..).any(|(lease, place)| {
            let record = record(lease);
            let since = match self.seen.get(&place) {
                Some((seen, since)) if *seen == record => *since,
                _ => now,
            };
            let held = !record.holder.is_empty() && now.duration_since(since) < record.lease;
            self.seen.insert(place, (record, since));
            held
        })
    }

    /// Renews one that is held: with what was written last, so that one request is enough.
    async fn renew(&mut self, shard: u32) -> kube::Result<()> {
        let Some(held) = self.held.get(&shard) else { return Ok(()) };
        let (started, name) = (Instant::now(), self.name(shard));
        let mut lease = held.lease.clone();
        if let Some(spec) = lease.spec.as_mut() {
            spec.renew_time = Some(MicroTime(Timestamp::now()));
        }
        let written = match self.leases.replace(&name, &post_as(FIELD_MANAGER), &lease).await {
            // Somebody has asked for it, or taken it.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let found = self.leases.get(&name).await?;
                if record(&found).holder != self.settings.identity {
                    tracing::error!(lease = name, "somebody else holds the Lease");
                    // Not renewed any more: it is lost at its deadline, which has passed for whoever took it.
                    return Ok(());
                }
                lease.metadata = found.metadata;
                self.leases.replace(&name, &post_as(FIELD_MANAGER), &lease).await?
            }
            other => other?,
        };
        self.held.insert(shard, Held { lease: written, renewed: started });
        Ok(())
    }

    /// Takes one, if nobody else was faster.
    async fn take(&mut self, shard: u32, lease: Option<Lease>) -> kube::Result<()> {
        let (started, name, now) = (Instant::now(), self.name(shard), MicroTime(Timestamp::now()));
        let before = lease.as_ref().and_then(|l| l.spec.as_ref()?.lease_transitions);
        let spec = LeaseSpec {
            holder_identity: Some(self.settings.identity.clone()),
            lease_duration_seconds: i32::try_from(TIMING.lease.as_secs()).ok(),
            acquire_time: Some(now.clone()),
            renew_time: Some(now),
            lease_transitions: Some(before.unwrap_or_default() + i32::from(lease.is_some())),
            ..LeaseSpec::default()
        };
        let labels = labels(self.settings.shards);
        let written = if let Some(mut lease) = lease {
            lease.spec = Some(spec);
            lease.metadata.labels.get_or_insert_default().extend(labels.clone());
            if let Some(annotations) = lease.metadata.annotations.as_mut() {
                annotations.remove(WANTED);
            }
            // The object still carries the resourceVersion that was read: a write in between makes this one fail.
            self.leases.replace(&name, &post_as(FIELD_MANAGER), &lease).await
        } else {
            let metadata =
                ObjectMeta { name: Some(name.clone()), labels: Some(labels.clone()), ..ObjectMeta::default() };
            self.leases.create(&post_as(FIELD_MANAGER), &Lease { metadata, spec: Some(spec) }).await
        };
        match written {
            Ok(lease) => {
                tracing::info!(identity = self.settings.identity, lease = name, "leading");
                self.held.insert(shard, Held { lease, renewed: started });
                // Whoever doesn't listen any more is about to end.
                let _ = self.tell.send(Told::Gained(shard)).await;
                Ok(())
            }
            // Lost the race; or it was made before it had a label, and isn't among those that are listed.
            Err(kube::Error::Api(status)) if status.code == 409 => {
                if let Some(found) = self.leases.get_opt(&name).await?.filter(|l| number(l).is_none()) {
                    let labelled =
                        json!({"metadata": {"labels": labels, "resourceVersion": found.metadata.resource_version}});
                    self.leases.patch(&name, &patch_as(FIELD_MANAGER), &Patch::Merge(labelled)).await?;
                }
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Gives `shards` back, once nobody works on them any more, so that the next holder need not wait for their end.
    async fn give(&mut self, shards: &[u32]) {
        let mut answers = Vec::new();
        for shard in shards {
            let (answer, answered) = oneshot::channel();
            if self.tell.send(Told::Yield(*shard, answer)).await.is_ok() {
                answers.push(answered);
            }
        }
        for answered in answers {
            let _ = answered.await;
        }
        for shard in shards.iter().copied().collect::<BTreeSet<_>>() {
            let Some(Held { mut lease, .. }) = self.held.remove(&shard) else { continue };
            if let Some(spec) = lease.spec.as_mut() {
                spec.holder_identity = None;
                spec.lease_duration_seconds = Some(1);
            }
            // With the version that was written last: if that fails, it ends by itself.
            if let Err(error) = self.leases.replace(&self.name(shard), &post_as(FIELD_MANAGER), &lease).await {
                tracing::debug!(error = words(&error), shard, "Lease not given back");
            }
        }
    }
}

/// The label of a Lease of so many shards.
fn labels(shards: u32) -> BTreeMap<String, String> {
    BTreeMap::from([(SHARDS.to_owned(), shards.to_string())])
}

/// Of how many shards a Lease is one.
fn number(lease: &Lease) -> Option<u32> {
    lease.metadata.labels.as_ref()?.get(SHARDS)?.parse().ok()
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.as_ref();
    let seconds = spec.and_then(|s| s.lease_duration_seconds).and_then(|s| u64::try_from(s).ok());
    Record {
        holder: spec.and_then(|s| s.holder_identity.clone()).unwrap_or_default(),
        // Only its holder renews it; who asks for it writes to it, too.
        version: spec.and_then(|s| s.renew_time.as_ref()).map(|t| t.0.to_string()).unwrap_or_default(),
        lease: seconds.map_or(TIMING.lease, Duration::from_secs),
    }
}
