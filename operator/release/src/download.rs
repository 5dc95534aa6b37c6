//! Downloads manifests that a spec names by URL: with limits, cached by digest, and revalidated
//! with conditional requests.

use knative_operator_runtime::compute::compute;
use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::user_agent;
use knative_operator_shared::label::FIELD_MANAGER;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::header::{ETAG, HeaderMap, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, ClientBuilder, Response, StatusCode, Url};
use sha2::{Digest, Sha256};

use super::bundle::Objects;
use super::host_policy::{ForbiddenHost, HostPolicy};
use super::parse::{self, ManifestError};
use super::source::Source;
use knative_operator_objects::CompactObject;

/// Maximum size of a manifest in bytes; Knative's largest release has a tenth of it.
const MAX_SIZE: usize = 10 << 20;
/// Time limit of connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Time for which a download is current without revalidation.
const MAX_AGE: Duration = Duration::from_secs(60);
/// Delays before retries.
const RETRY_DELAYS: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];
/// Maximum number of redirects.
const MAX_REDIRECTS: usize = 5;
/// Maximum number of cached URLs, and maximum size of their manifests in bytes; the one used the
/// longest ago is dropped first.
const MAX_CACHED: (usize, usize) = (256, 64 << 20);

/// Why a manifest is not available.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The connection or the transfer failed.
    #[error("{0}")]
    Failed(String),
    /// The server answered with an error.
    #[error("the server answered {0}")]
    Status(StatusCode),
    /// The manifest is too large.
    #[error("it is larger than {} MiB", MAX_SIZE >> 20)]
    TooLarge,
    /// The download took too long.
    #[error("it took longer than {0:?}")]
    TooSlow(Duration),
    /// The host may not be contacted.
    #[error(transparent)]
    Forbidden(#[from] ForbiddenHost),
    /// The manifest can't be parsed.
    #[error("it can't be parsed: {0}")]
    Unparsable(ManifestError),
}

impl DownloadError {
    /// Whether a retry may succeed.
    fn is_transient(&self) -> bool {
        match self {
            Self::Failed(_) => true,
            Self::Status(status) => status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS,
            Self::TooLarge | Self::TooSlow(_) | Self::Forbidden(_) | Self::Unparsable(_) => false,
        }
    }
}

/// Why the HTTP client can't be built.
#[derive(Debug, thiserror::Error)]
#[error("cannot download manifests: {}", error_text(.0))]
pub struct DownloadsError(reqwest::Error);

/// Downloaded manifests.
#[derive(Debug)]
pub struct Downloads {
    client: Client,
    hosts: HostPolicy,
    timeout: Duration,
    current: Duration,
    cached: Mutex<HashMap<Url, CachedManifest>>,
}

#[derive(Clone, Debug)]
struct CachedManifest {
    digest: [u8; 32],
    /// Size of the manifest in bytes.
    size: usize,
    objects: Objects,
    /// Headers for a conditional request.
    validators: HeaderMap,
    asked: Instant,
}

impl Downloads {
    /// No downloads yet. `timeout` is for one manifest, retries included. Trusts the system's
    /// authorities (or `SSL_CERT_FILE`), and honors `HTTPS_PROXY` and `NO_PROXY`; a proxy resolves
    /// names, and so decides about them instead of `hosts`.
    pub fn new(timeout: Duration, hosts: HostPolicy) -> Result<Self, DownloadsError> {
        let builder = Client::builder().user_agent(user_agent(FIELD_MANAGER));
        Self::with(builder, timeout, MAX_AGE, hosts)
    }

    /// The same with a client from `builder`; a download is current for `current`.
    pub fn with(
        builder: ClientBuilder,
        timeout: Duration,
        current: Duration,
        hosts: HostPolicy,
    ) -> Result<Self, DownloadsError> {
        let redirects = hosts.clone();
        let agent = concat!("knative-operator/", env!("CARGO_PKG_VERSION"));
        let builder = builder
            .user_agent(agent)
            .connect_timeout(CONNECT_TIMEOUT)
            .https_only(true)
            .dns_resolver(Arc::new(hosts.clone()))
            .redirect(Policy::custom(move |attempt| follow(&redirects, attempt)));
        Ok(Self { client: builder.build().map_err(DownloadsError)?, hosts, timeout, current, cached: Mutex::default() })
    }

    /// The objects at `url`, for a resource in `namespace` of the hub. If revalidation fails, the
    /// cached objects are used.
    pub async fn objects(&self, namespace: &str, url: &Url) -> Result<Objects, DownloadError> {
        let known = self.lock().get(url).cloned();
        if let Some(cached) = known.as_ref().filter(|k| k.asked.elapsed() < self.current) {
            return Ok(Arc::clone(&cached.objects));
        }
        let fetched = tokio::time::timeout(self.timeout, self.fetch_with_retries(namespace, url, known.as_ref())).await;
        match (fetched.unwrap_or(Err(DownloadError::TooSlow(self.timeout))), known) {
            (Ok(cached), _) => {
                let objects = Arc::clone(&cached.objects);
                self.store(url, cached);
                Ok(objects)
            }
            (Err(error), Some(cached)) => {
                tracing::warn!(url = %Source::Url(url.clone()), error = error_text(&error), "failed to download the manifest again; using the cached one");
                let objects = Arc::clone(&cached.objects);
                // Not in each reconcile: the failed attempt may have taken long.
                self.store(url, CachedManifest { asked: Instant::now(), ..cached });
                Ok(objects)
            }
            (Err(error), None) => Err(error),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Url, CachedManifest>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn store(&self, url: &Url, cached: CachedManifest) {
        let mut all = self.lock();
        all.insert(url.clone(), cached);
        evict(&mut all);
    }

    async fn fetch_with_retries(
        &self,
        namespace: &str,
        url: &Url,
        known: Option<&CachedManifest>,
    ) -> Result<CachedManifest, DownloadError> {
        let mut delays = RETRY_DELAYS.into_iter();
        loop {
            match (self.fetch(namespace, url, known).await, delays.next()) {
                (Err(error), Some(delay)) if error.is_transient() => tokio::time::sleep(delay).await,
                (outcome, _) => return outcome,
            }
        }
    }

    async fn fetch(
        &self,
        namespace: &str,
        url: &Url,
        known: Option<&CachedManifest>,
    ) -> Result<CachedManifest, DownloadError> {
        self.hosts.check(url)?;
        let headers = known.map(|k| k.validators.clone()).unwrap_or_default();
        let response = self.client.get(url.clone()).headers(headers).send().await.map_err(failed)?;
        let asked = Instant::now();
        match (response.status(), known) {
            (StatusCode::NOT_MODIFIED, Some(cached)) => return Ok(CachedManifest { asked, ..cached.clone() }),
            (StatusCode::OK, _) => {}
            (status, _) => return Err(DownloadError::Status(status)),
        }
        let validators = validators(response.headers());
        let body = read(response).await?;
        let digest: [u8; 32] = Sha256::digest(&body).into();
        let same = self.lock().values().find(|k| k.digest == digest).map(|k| Arc::clone(&k.objects));
        let objects = match same {
            Some(objects) => objects,
            None => Arc::new(compute(namespace, || parse_objects(&body)).await?),
        };
        Ok(CachedManifest { digest, size: body.len(), objects, validators, asked })
    }
}

/// Drops the manifests used the longest ago, until the others may stay.
fn evict(all: &mut HashMap<Url, CachedManifest>) {
    let is_too_large = |all: &HashMap<Url, CachedManifest>| {
        all.len() > MAX_CACHED.0 || all.values().map(|cached| cached.size).sum::<usize>() > MAX_CACHED.1
    };
    while is_too_large(all) {
        let oldest = all.iter().min_by_key(|(_, cached)| cached.asked).map(|(url, _)| url.clone());
        let Some(oldest) = oldest else { return };
        all.remove(&oldest);
    }
}

fn parse_objects(body: &[u8]) -> Result<Vec<CompactObject>, DownloadError> {
    let text = std::str::from_utf8(body).map_err(|e| DownloadError::Unparsable(ManifestError::NotText(e)))?;
    let objects = parse::objects(text).map_err(DownloadError::Unparsable)?;
    Ok(objects.iter().map(CompactObject::new).collect())
}

async fn read(mut response: Response) -> Result<Vec<u8>, DownloadError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > MAX_SIZE {
            return Err(DownloadError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// Headers for the next, conditional request, from those of `answer`.
fn validators(answer: &HeaderMap) -> HeaderMap {
    let pairs: [(HeaderName, HeaderName); 2] = [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)];
    pairs.into_iter().filter_map(|(given, asked)| Some((asked, answer.get(given)?.clone()))).collect()
}

/// Follows redirects to other hosts, as GitHub's releases need, but never to another scheme.
fn follow(hosts: &HostPolicy, attempt: Attempt<'_>) -> reqwest::redirect::Action {
    if let Err(forbidden) = hosts.check(attempt.url()) {
        return attempt.error(forbidden);
    }
    if attempt.previous().first().is_some_and(|first| first.scheme() != attempt.url().scheme()) {
        let scheme = attempt.url().scheme().to_owned();
        return attempt.error(format!("it redirects to another scheme, {scheme}"));
    }
    if attempt.previous().len() > MAX_REDIRECTS {
        attempt.error(format!("it redirects more than {MAX_REDIRECTS} times"))
    } else {
        attempt.follow()
    }
}

/// The error as text, without the URL: it may contain a credential.
#[allow(clippy::needless_pass_by_value)] // as `map_err` gives it
fn failed(error: reqwest::Error) -> DownloadError {
    DownloadError::Failed(error_text(&error.without_url()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cached_manifests_have_a_limit() {
        let now = Instant::now();
        let manifest = |age: u64, size| {
            let asked = now.checked_sub(Duration::from_secs(age)).unwrap();
            CachedManifest { digest: [0; 32], size, objects: Arc::default(), validators: HeaderMap::new(), asked }
        };
        let url = |number: usize| Url::parse(&format!("https://example.com/{number}")).unwrap();
        let mut large: HashMap<_, _> = (0..10).map(|number| (url(number), manifest(number as u64, MAX_SIZE))).collect();
        evict(&mut large);
        assert!(large.len() == 6 && (0..6).all(|number| large.contains_key(&url(number))), "{:?}", large.keys());
        let mut many: HashMap<_, _> = (0..300).map(|number| (url(number), manifest(number as u64, 1))).collect();
        evict(&mut many);
        assert!(many.len() == MAX_CACHED.0 && many.contains_key(&url(0)));
    }
}
