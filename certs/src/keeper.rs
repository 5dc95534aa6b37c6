//! Keeps the certificates right: issues, renews, stores, injects and serves them, whenever the Secret or one of the
//! webhook configurations changes, and when a certificate is due.

use std::time::Duration;

use futures::stream::{BoxStream, select_all};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::core::v1::Secret;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use time::OffsetDateTime;

use crate::inject::inject;
use crate::issue::{self, Lifetimes};
use crate::plan::{Plan, plan};
use crate::resolver::{ServeError, Served};
use crate::secret;

/// Whose certificates, and where they are kept.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the Secret.
    pub namespace: String,
    /// Name of the Secret.
    pub secret: String,
    /// DNS names of the webhook's Service.
    pub names: Vec<String>,
    /// Name of the ValidatingWebhookConfiguration.
    pub validating: String,
    /// Name of the MutatingWebhookConfiguration.
    pub mutating: String,
    /// How long certificates live.
    pub lifetimes: Lifetimes,
}

/// Why the certificates could not be put right this time.
#[derive(Debug, thiserror::Error)]
pub enum KeepError {
    /// The API server refused something.
    #[error("the API server did not take the certificates")]
    Api(#[from] kube::Error),
    /// Issuing failed.
    #[error("no certificate could be issued")]
    Issue(#[from] rcgen::Error),
    /// Serving failed.
    #[error("the stored certificate can't be served")]
    Serve(#[from] ServeError),
}

/// Keeps the certificates right.
pub struct Keeper {
    client: Client,
    settings: Settings,
    served: Served,
}

/// How soon a failure is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How long nothing is looked at, at most.
const LONGEST: Duration = Duration::from_secs(3600);

impl Keeper {
    /// Keeps what `settings` say, and serves it through `served`.
    pub fn new(client: Client, settings: Settings, served: Served) -> Self {
        Self { client, settings, served }
    }

    /// Puts everything right again and again, for ever; calls `told` after each time with how it went and when the
    /// certificate that is served ends.
    pub async fn run(self, mut told: impl FnMut(Result<Option<OffsetDateTime>, &KeepError>)) {
        let mut changes = self.changes();
        loop {
            let (pause, outcome) = match self.once().await {
                Ok((next, ends)) => (until(next), Ok(ends)),
                Err(error) => (RETRY, Err(error)),
            };
            told(outcome.as_ref().map(|ends| *ends));
            // A change or the pause, whichever comes first; a burst of changes is one change.
            if tokio::time::timeout(pause, changes.next()).await.is_ok() {
                while tokio::time::timeout(Duration::from_millis(50), changes.next()).await.is_ok_and(|c| c.is_some()) {}
            }
        }
    }

    /// Puts everything right once; when to look again, and when the certificate ends.
    async fn once(&self) -> Result<(OffsetDateTime, Option<OffsetDateTime>), KeepError> {
        let s = &self.settings;
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &s.namespace);
        loop {
            let now = OffsetDateTime::now_utc();
            let seen = secrets.get_opt(&s.secret).await?;
            let material = seen.as_ref().and_then(secret::material);
            let (fresh, why) = match (plan(material.as_ref(), &s.names, now), &material) {
                (Plan::Keep(next), Some(material)) => {
                    inject(&self.client, &s.validating, &s.mutating, &material.authority).await?;
                    self.served.set(material)?;
                    return Ok((next, crate::plan::leaf_ends(material)));
                }
                (Plan::RenewLeaf(why), Some(m)) => (issue::leaf(&m.authority, &m.authority_key, &s.names, now, s.lifetimes)?, why),
                (Plan::Replace(why) | Plan::RenewLeaf(why), _) => (issue::all(&s.names, now, s.lifetimes)?, why),
                (Plan::Keep(_), None) => (issue::all(&s.names, now, s.lifetimes)?, "there is none"),
            };
            match secret::store(&secrets, &s.secret, seen, &fresh).await {
                Ok(_) => tracing::info!(secret = s.secret, why, "certificate issued"),
                // Another replica was faster: take what it stored.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        let (client, s) = (&self.client, &self.settings);
        let only = |name: &str| watcher::Config::default().fields(&format!("metadata.name={name}"));
        // Each watch has its own back-off; an error is a reason to look again, no more.
        let secret = watcher(Api::<Secret>::namespaced(client.clone(), &s.namespace), only(&s.secret)).default_backoff().map_ok(|_| ());
        let validating =
            watcher(Api::<ValidatingWebhookConfiguration>::all(client.clone()), only(&s.validating)).default_backoff().map_ok(|_| ());
        let mutating =
            watcher(Api::<MutatingWebhookConfiguration>::all(client.clone()), only(&s.mutating)).default_backoff().map_ok(|_| ());
        select_all([secret.boxed(), validating.boxed(), mutating.boxed()]).map(|_| ()).boxed()
    }
}

fn until(next: OffsetDateTime) -> Duration {
    Duration::try_from(next - OffsetDateTime::now_utc()).unwrap_or(Duration::ZERO).clamp(Duration::from_millis(100), LONGEST)
}
