//! Caches the credential of a spoke, and renews it before it expires and after a 401. One plugin
//! runs per spoke at a time. A Secret, also one that a plugin reads, is checked again after ten
//! minutes, and before its credential is sent to another server: its binding may have changed, or
//! not permit that server.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use http::HeaderValue;
use jiff::Timestamp;
use knative_operator_base::cluster_profile::ClusterProfileReference;
use secrecy::ExposeSecret;
use tokio::sync::{Mutex, Semaphore};

use super::error::AccessError;
use super::exec::{self, Credential};
use super::metrics::ClusterMetrics;
use super::named_secrets::{NamedSecrets, named_secrets};
use super::profile::{Access, CredentialSource, Plugin};
use super::secret::SecretReader;

/// Limit of plugins that start at the same time, over all spokes.
static START_PERMITS: Semaphore = Semaphore::const_new(16);
/// Time that a plugin counts as starting, so that a plugin that hangs doesn't delay other spokes.
const START_DURATION: Duration = Duration::from_secs(1);
/// A refused credential younger than this is not renewed.
const MIN_AGE: Duration = Duration::from_secs(2);
/// Delay before the renewal of a valid credential is retried.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Gets credentials for spokes.
#[derive(Clone)]
pub struct CredentialFetcher {
    /// The built-in provider.
    pub secrets: SecretReader,
    /// Time limit of a provider.
    pub timeout: Duration,
    /// Metrics of credentials and connections.
    pub metrics: Arc<dyn ClusterMetrics>,
}

/// The credential of one spoke.
pub struct CredentialCache {
    fetcher: CredentialFetcher,
    cluster: ClusterProfileReference,
    access: Arc<Access>,
    current: ArcSwap<CachedCredential>,
    /// Time of the last failed renewal; locked while a renewal runs.
    failed_renewal: Mutex<Option<Instant>>,
    /// When a request needed it last, in seconds since 1970.
    used_at: AtomicI64,
}

/// A credential and the time of its request.
#[derive(Debug)]
pub struct CachedCredential {
    /// The credential.
    pub credential: Credential,
    /// What has to be done about its Secret, if that names no ClusterProfile.
    remedy: Option<String>,
    requested_at: Timestamp,
}

impl CachedCredential {
    /// The `Authorization` header; `None` for a client certificate, or a token that is no valid
    /// header.
    pub fn authorization(&self) -> Option<HeaderValue> {
        let token = self.credential.token.as_ref()?;
        let mut header = HeaderValue::try_from(format!("Bearer {}", token.expose_secret().trim())).ok()?;
        header.set_sensitive(true);
        Some(header)
    }

    /// Whether four fifths of its lifetime are over.
    fn is_due(&self, now: Timestamp) -> bool {
        self.credential
            .expires
            .is_some_and(|end| now.duration_since(self.requested_at) * 5 >= end.duration_since(self.requested_at) * 4)
    }

    /// Whether it was requested a moment ago.
    fn is_fresh(&self, now: Timestamp) -> bool {
        now.duration_since(self.requested_at).unsigned_abs() < MIN_AGE
    }
}

impl CredentialCache {
    /// Requests the credential of `cluster` from the source of `access` for the first time.
    pub async fn start(
        fetcher: CredentialFetcher,
        cluster: ClusterProfileReference,
        access: Arc<Access>,
    ) -> Result<Self, AccessError> {
        let cached = Box::pin(fetcher.get(&cluster, &access)).await?;
        if let Some(remedy) = &cached.remedy {
            tracing::warn!(cluster = %cluster, remedy, "the Secret with the credential names no ClusterProfile");
        }
        let current = ArcSwap::from_pointee(cached);
        Ok(Self { fetcher, cluster, access, current, failed_renewal: Mutex::default(), used_at: AtomicI64::default() })
    }

    /// Whether it may serve a connection of another `access`: if the same plugin got the same
    /// input. A Secret has to be checked again, since its binding may not permit another server.
    pub fn can_serve(&self, access: &Access) -> bool {
        let CredentialSource::Plugin(plugin) = &access.source else { return false };
        self.access.source == access.source && named_secrets(plugin) == Ok(NamedSecrets::default())
    }

    /// Name of the program, for the user agent of its requests.
    pub fn program(&self) -> &'static str {
        self.fetcher.secrets.program
    }

    /// What has to be done about the Secret, if it names no ClusterProfile.
    pub fn remedy(&self) -> Option<String> {
        self.current.load().remedy.clone()
    }

    /// When it expires, if it does.
    pub fn expires(&self) -> Option<Timestamp> {
        self.current.load().credential.expires
    }

    /// When a request needed it last.
    pub fn used_at(&self) -> Option<Timestamp> {
        let seconds = self.used_at.load(Ordering::Relaxed);
        if seconds == 0 { None } else { Timestamp::from_second(seconds).ok() }
    }

    /// The credential, renewed first if that is due. While it is valid, only the caller that starts
    /// the renewal waits for it.
    pub async fn current(&self) -> Result<Arc<CachedCredential>, AccessError> {
        let (cached, now) = (self.current.load_full(), Timestamp::now());
        self.used_at.store(now.as_second(), Ordering::Relaxed);
        if !cached.is_due(now) {
            return Ok(cached);
        }
        if cached.credential.expires.is_some_and(|end| end <= now) {
            return self.newer_than(&cached).await;
        }
        match self.failed_renewal.try_lock() {
            Ok(failed) if failed.is_none_or(|at| at.elapsed() > RETRY_DELAY) => drop(failed),
            _ => return Ok(cached),
        }
        match self.newer_than(&cached).await {
            Err(error) => {
                tracing::warn!(cluster = %self.cluster, error = error.message, "failed to renew the credential; the current one is still valid");
                Ok(cached)
            }
            renewed => renewed,
        }
    }

    /// A credential newer than `old`, unless `old` is new itself. Concurrent callers share one
    /// renewal.
    pub async fn newer_than(&self, old: &Arc<CachedCredential>) -> Result<Arc<CachedCredential>, AccessError> {
        let mut failed = self.failed_renewal.lock().await;
        let cached = self.current.load_full();
        if !Arc::ptr_eq(&cached, old) || cached.is_fresh(Timestamp::now()) {
            return Ok(cached);
        }
        let renewed = Box::pin(self.fetcher.get(&self.cluster, &self.access)).await;
        *failed = renewed.is_err().then(Instant::now);
        let renewed = Arc::new(renewed?);
        self.current.store(Arc::clone(&renewed));
        tracing::debug!(cluster = %self.cluster, "credential renewed");
        Ok(renewed)
    }
}

impl CredentialFetcher {
    async fn get(&self, cluster: &ClusterProfileReference, access: &Access) -> Result<CachedCredential, AccessError> {
        let (started, requested_at) = (Instant::now(), Timestamp::now());
        let credential = match &access.source {
            CredentialSource::Plugin(plugin) => self.by_plugin(plugin, cluster, access).await,
            CredentialSource::Secret(secret) => self.secrets.read(secret, cluster, access, self.timeout).await,
        };
        self.metrics.credential_requested(cluster, access.source.provider(), started.elapsed(), credential.is_ok());
        let (credential, remedy) = credential?;
        Ok(CachedCredential { credential, remedy, requested_at })
    }

    /// Runs `plugin`, if it may read the Secrets that its configuration names.
    async fn by_plugin(
        &self,
        plugin: &Plugin,
        cluster: &ClusterProfileReference,
        access: &Access,
    ) -> Result<(Credential, Option<String>), AccessError> {
        let permitted = self.secrets.permit(plugin, cluster, access, self.timeout).await?;
        let run = exec::run(plugin, self.timeout);
        tokio::pin!(run);
        // The semaphore is never closed, so this call only waits.
        let permit = START_PERMITS.acquire().await;
        let started_in_time = tokio::time::timeout(START_DURATION, &mut run).await;
        drop(permit);
        let mut credential = match started_in_time {
            Ok(credential) => credential,
            Err(_) => run.await,
        }?;
        let Some((remedy, until)) = permitted else { return Ok((credential, None)) };
        credential.expires = credential.expires.into_iter().chain(until).min();
        Ok((credential, remedy))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// Makes the credential of `cache` so old that it is renewed if it is refused.
    pub fn age(cache: &CredentialCache) {
        let cached = cache.current.load_full();
        let (credential, remedy) = (cached.credential.clone(), cached.remedy.clone());
        let requested_at = cached.requested_at.saturating_sub(MIN_AGE).unwrap();
        cache.current.store(Arc::new(CachedCredential { credential, remedy, requested_at }));
    }
}
