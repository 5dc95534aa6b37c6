//! Manifests that a spec names by URL: downloaded with limits, kept by the digest of what came, asked for again with their validators.

use knative_operator_runtime::identity::user_agent;
use knative_operator_runtime::words;
use knative_operator_shared::label::FIELD_MANAGER;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use reqwest::header::{ETAG, HeaderMap, HeaderName, IF_MODIFIED_SINCE, IF_NONE_MATCH, LAST_MODIFIED};
use reqwest::redirect::{Attempt, Policy};
use reqwest::{Client, ClientBuilder, Response, StatusCode, Url};
use sha2::{Digest, Sha256};

use super::bundle::Objects;
use super::parse;
use super::source::Source;
use crate::packed::Packed;

/// Largest manifest, in bytes. The largest release of Knative is a tenth of it.
const LARGEST: usize = 10 << 20;
/// Time to connect.
const CONNECT: Duration = Duration::from_secs(5);
/// How long what came is taken for current without asking again.
const CURRENT: Duration = Duration::from_secs(60);
/// Pauses before it is tried again.
const PAUSES: [Duration; 2] = [Duration::from_millis(250), Duration::from_secs(1)];
/// Redirects that are followed.
const REDIRECTS: usize = 5;
/// URLs that are remembered; the one that was asked for the longest ago goes first.
const REMEMBERED: usize = 256;

/// Why a manifest can't be had.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// The connection failed, or something on the way.
    #[error("{0}")]
    Failed(String),
    /// The server refused.
    #[error("the server answered {0}")]
    Status(StatusCode),
    /// It is too large.
    #[error("it is larger than {} MiB", LARGEST >> 20)]
    TooLarge,
    /// It took too long.
    #[error("it took longer than {0:?}")]
    TooSlow(Duration),
    /// It is no manifest.
    #[error("it is broken: {0}")]
    Broken(String),
}

impl DownloadError {
    /// Whether it may go well a moment later.
    fn passes(&self) -> bool {
        match self {
            Self::Failed(_) => true,
            Self::Status(status) => status.is_server_error() || *status == StatusCode::TOO_MANY_REQUESTS,
            Self::TooLarge | Self::TooSlow(_) | Self::Broken(_) => false,
        }
    }
}

/// Why nothing can be downloaded at all.
#[derive(Debug, thiserror::Error)]
#[error("manifests can't be downloaded: {}", words(.0))]
pub struct DownloadsError(reqwest::Error);

/// What was downloaded.
#[derive(Debug)]
pub struct Downloads {
    client: Client,
    limit: Duration,
    current: Duration,
    kept: Mutex<HashMap<Url, Kept>>,
}

#[derive(Clone, Debug)]
struct Kept {
    digest: [u8; 32],
    objects: Objects,
    /// What the server is asked with whether it has changed.
    validators: HeaderMap,
    asked: Instant,
}

impl Downloads {
    /// Nothing is downloaded yet. `limit`: how long one manifest may take, retries included. Trusts the system's
    /// authorities (or `SSL_CERT_FILE`), and honours `HTTPS_PROXY` and `NO_PROXY`.
    pub fn new(limit: Duration) -> Result<Self, DownloadsError> {
        Self::with(Client::builder().user_agent(user_agent(FIELD_MANAGER)), limit, CURRENT)
    }

    /// The same, through a client that `builder` is the beginning of; what came is taken for current for as long as `current`.
    pub fn with(builder: ClientBuilder, limit: Duration, current: Duration) -> Result<Self, DownloadsError> {
        let agent = concat!("knative-operator/", env!("CARGO_PKG_VERSION"));
        let builder =
            builder.user_agent(agent).connect_timeout(CONNECT).https_only(true).redirect(Policy::custom(follow));
        Ok(Self { client: builder.build().map_err(DownloadsError)?, limit, current, kept: Mutex::default() })
    }

    /// The objects at `url`. Where the server can't be asked any more, what it gave before is used.
    pub async fn objects(&self, url: &Url) -> Result<Objects, DownloadError> {
        let known = self.lock().get(url).cloned();
        if let Some(kept) = known.as_ref().filter(|k| k.asked.elapsed() < self.current) {
            return Ok(Arc::clone(&kept.objects));
        }
        let fetched = tokio::time::timeout(self.limit, self.persist(url, known.as_ref())).await;
        match (fetched.unwrap_or(Err(DownloadError::TooSlow(self.limit))), known) {
            (Ok(kept), _) => {
                let objects = Arc::clone(&kept.objects);
                self.keep(url, kept);
                Ok(objects)
            }
            (Err(error), Some(kept)) => {
                tracing::warn!(url = %Source::Url(url.clone()), error = words(&error), "manifest not downloaded again; the one from before is used");
                let objects = Arc::clone(&kept.objects);
                // Not in each pass: it may have taken long.
                self.keep(url, Kept { asked: Instant::now(), ..kept });
                Ok(objects)
            }
            (Err(error), None) => Err(error),
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<Url, Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, url: &Url, kept: Kept) {
        let mut all = self.lock();
        all.insert(url.clone(), kept);
        let oldest = all.iter().min_by_key(|(_, kept)| kept.asked).map(|(url, _)| url.clone());
        if let Some(oldest) = oldest.filter(|_| all.len() > REMEMBERED) {
            all.remove(&oldest);
        }
    }

    async fn persist(&self, url: &Url, known: Option<&Kept>) -> Result<Kept, DownloadError> {
        let mut pauses = PAUSES.into_iter();
        loop {
            match (self.fetch(url, known).await, pauses.next()) {
                (Err(error), Some(pause)) if error.passes() => tokio::time::sleep(pause).await,
                (outcome, _) => return outcome,
            }
        }
    }

    async fn fetch(&self, url: &Url, known: Option<&Kept>) -> Result<Kept, DownloadError> {
        let headers = known.map(|k| k.validators.clone()).unwrap_or_default();
        let response = self.client.get(url.clone()).headers(headers).send().await.map_err(failed)?;
        let asked = Instant::now();
        match (response.status(), known) {
            (StatusCode::NOT_MODIFIED, Some(kept)) => return Ok(Kept { asked, ..kept.clone() }),
            (StatusCode::OK, _) => {}
            (status, _) => return Err(DownloadError::Status(status)),
        }
        let validators = validators(response.headers());
        let body = read(response).await?;
        let digest: [u8; 32] = Sha256::digest(&body).into();
        let same = self.lock().values().find(|k| k.digest == digest).map(|k| Arc::clone(&k.objects));
        let objects = match same {
            Some(objects) => objects,
            None => Arc::new(tokio::task::block_in_place(|| understand(&body))?),
        };
        Ok(Kept { digest, objects, validators, asked })
    }
}

fn understand(body: &[u8]) -> Result<Vec<Packed>, DownloadError> {
    let text = std::str::from_utf8(body).map_err(|e| DownloadError::Broken(e.to_string()))?;
    let objects = parse::objects(text).map_err(DownloadError::Broken)?;
    Ok(objects.iter().map(Packed::new).collect())
}

async fn read(mut response: Response) -> Result<Vec<u8>, DownloadError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > LARGEST {
            return Err(DownloadError::TooLarge);
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// What the server is to be asked with next time, out of what it says of this time.
fn validators(answer: &HeaderMap) -> HeaderMap {
    let pairs: [(HeaderName, HeaderName); 2] = [(ETAG, IF_NONE_MATCH), (LAST_MODIFIED, IF_MODIFIED_SINCE)];
    pairs.into_iter().filter_map(|(given, asked)| Some((asked, answer.get(given)?.clone()))).collect()
}

/// A redirect may lead to another host, as those of GitHub's releases do, but never to another scheme.
fn follow(attempt: Attempt<'_>) -> reqwest::redirect::Action {
    if attempt.previous().first().is_some_and(|first| first.scheme() != attempt.url().scheme()) {
        let scheme = attempt.url().scheme().to_owned();
        return attempt.error(format!("it redirects to another scheme, {scheme}"));
    }
    if attempt.previous().len() > REDIRECTS {
        attempt.error(format!("it redirects more than {REDIRECTS} times"))
    } else {
        attempt.follow()
    }
}

/// An error in words, without the URL: it may hold a credential.
#[allow(clippy::needless_pass_by_value)] // as `map_err` gives it
fn failed(error: reqwest::Error) -> DownloadError {
    DownloadError::Failed(words(&error.without_url()))
}
