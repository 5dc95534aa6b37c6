//! Keeps the credential of one spoke fresh: one run of the plugin at a time, ahead of its end, and after a 401.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::HeaderValue;
use jiff::Timestamp;
use knative_operator_shared::api::ClusterProfileReference;
use kube::Client;
use secrecy::ExposeSecret;
use tokio::sync::{Mutex, Semaphore};

use super::exec::{self, Credential};
use super::profile::Source;
use super::{Unresolved, secret};
use crate::metrics::Metrics;

/// Plugins that are started at the same time, over all spokes.
static STARTS: Semaphore = Semaphore::const_new(16);
/// How long a plugin counts as being started: one that hangs holds up no other spoke's.
const START: Duration = Duration::from_secs(1);
/// A credential that is refused and no older than this is not asked for again.
const FRESH: Duration = Duration::from_secs(2);
/// How soon it is tried again to renew one that is valid still.
const REST: Duration = Duration::from_secs(5);

/// Who gets credentials for the spokes.
#[derive(Clone)]
pub struct Issuer {
    /// The hub, whose Secrets the built-in provider reads.
    pub hub: Client,
    /// The operator's own namespace.
    pub namespace: String,
    /// How long a plugin may take.
    pub limit: Duration,
    /// What is counted.
    pub metrics: Metrics,
}

/// The credential of one spoke.
pub struct Keeper {
    issuer: Issuer,
    cluster: ClusterProfileReference,
    source: Source,
    current: ArcSwap<Held>,
    /// When it was tried last in vain to have another one.
    refresh: Mutex<Option<Instant>>,
}

/// A credential, and when it was had.
#[derive(Debug)]
pub struct Held {
    /// The credential.
    pub credential: Credential,
    had: Timestamp,
}

impl Held {
    /// The `Authorization` header; none if it is a client certificate, or a token that no header can hold.
    pub fn authorization(&self) -> Option<HeaderValue> {
        let token = self.credential.token.as_ref()?;
        let mut header = HeaderValue::try_from(format!("Bearer {}", token.expose_secret().trim())).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    /// Whether four fifths of its life are over.
    fn due(&self, now: Timestamp) -> bool {
        self.credential.expires.is_some_and(|end| now.duration_since(self.had) * 5 >= end.duration_since(self.had) * 4)
    }

    /// Whether it was had a moment ago.
    fn fresh(&self, now: Timestamp) -> bool {
        now.duration_since(self.had).unsigned_abs() < FRESH
    }
}

impl Keeper {
    /// Gets the credential of `cluster` from `source` for the first time.
    pub async fn start(issuer: Issuer, cluster: ClusterProfileReference, source: Source) -> Result<Self, Unresolved> {
        let held = issuer.get(&cluster, &source).await?;
        Ok(Self { issuer, cluster, source, current: ArcSwap::from_pointee(held), refresh: Mutex::default() })
    }

    /// Whether it is from `source`.
    pub fn is_from(&self, source: &Source) -> bool {
        self.source == *source
    }

    /// The credential, refreshed first if it is due; while it is valid nobody waits for that but whoever began it.
    pub async fn current(&self) -> Result<Arc<Held>, Unresolved> {
        let (held, now) = (self.current.load_full(), Timestamp::now());
        if !held.due(now) {
            return Ok(held);
        }
        if held.credential.expires.is_some_and(|end| end <= now) {
            return self.newer_than(&held).await;
        }
        match self.refresh.try_lock() {
            Ok(failed) if failed.is_none_or(|at| at.elapsed() > REST) => drop(failed),
            _ => return Ok(held),
        }
        match self.newer_than(&held).await {
            Err(unresolved) => {
                tracing::warn!(cluster = %self.cluster, why = unresolved.message, "credential not renewed; the old one is valid still");
                Ok(held)
            }
            fresh => fresh,
        }
    }

    /// A credential that isn't `old`, unless that is new: whoever comes while the plugin runs for somebody else takes that one's result.
    pub async fn newer_than(&self, old: &Arc<Held>) -> Result<Arc<Held>, Unresolved> {
        let mut failed = self.refresh.lock().await;
        let held = self.current.load_full();
        if !Arc::ptr_eq(&held, old) || held.fresh(Timestamp::now()) {
            return Ok(held);
        }
        let fresh = self.issuer.get(&self.cluster, &self.source).await;
        *failed = fresh.is_err().then(Instant::now);
        let fresh = Arc::new(fresh?);
        self.current.store(Arc::clone(&fresh));
        tracing::debug!(cluster = %self.cluster, "credential renewed");
        Ok(fresh)
    }
}

impl Issuer {
    async fn get(&self, cluster: &ClusterProfileReference, source: &Source) -> Result<Held, Unresolved> {
        let (started, had) = (Instant::now(), Timestamp::now());
        let credential = match source {
            Source::Plugin(plugin) => {
                let run = exec::run(plugin, self.limit);
                tokio::pin!(run);
                // The semaphore is never closed, so this only waits.
                let turn = STARTS.acquire().await;
                let quick = tokio::time::timeout(START, &mut run).await;
                drop(turn);
                match quick {
                    Ok(credential) => credential,
                    Err(_) => run.await,
                }
            }
            Source::Secret { name, .. } => secret::read(&self.hub, &self.namespace, name, self.limit).await,
        };
        self.metrics.credential(cluster, source.provider(), started.elapsed(), credential.is_ok());
        Ok(Held { credential: credential?, had })
    }
}
