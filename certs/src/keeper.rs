//! Keeps everything right: issues and renews, stores, injects, serves. Each replica runs one; they agree through the
//! Secret, where the first to write wins.

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::{BoxStream, select_all};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use knative_operator_runtime::words;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use time::OffsetDateTime;

use crate::inject::Configurations;
use crate::issue::{self, Lifetimes};
use crate::material::Material;
use crate::plan::{self, Plan};
use crate::resolver::{ServeError, Served};
use crate::secret;

/// Who issues the certificates.
#[derive(Clone, Copy, Debug)]
pub enum Source {
    /// The webhook itself.
    Own(Lifetimes),
    /// Somebody else (the user, cert-manager), into the Secret: `tls.crt`, `tls.key`, and `ca.crt` to be trusted.
    Provided,
}

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
    /// Name of the webhook's Deployment.
    pub deployment: String,
    /// Field manager of what is written.
    pub manager: &'static str,
    /// Who issues them.
    pub source: Source,
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
    /// Nobody has provided any.
    #[error("Secret {0} has no tls.crt and tls.key yet; whoever provides the certificates puts them there")]
    NotProvided(String),
}

/// How the certificates are.
#[derive(Clone, Copy, Debug)]
pub struct State {
    /// When the one that is served ends.
    pub ends: Option<OffsetDateTime>,
    /// When its authority ends.
    pub authority_ends: Option<OffsetDateTime>,
    /// Whether it is another one than before.
    pub another: bool,
}

/// Keeps the certificates right.
pub struct Keeper {
    client: Client,
    settings: Settings,
    served: Served,
    /// What was in the Secret when it was right.
    held: Option<Material>,
    /// Whether one of the configurations asks nobody yet.
    suspended: bool,
    /// Since when the Deployment is rolled out, while they are.
    rolled_out: Option<Instant>,
}

/// How soon a failure is tried again.
const RETRY: Duration = Duration::from_secs(2);
/// How soon it is looked again whether the Deployment is rolled out.
const LOOK: Duration = Duration::from_secs(1);
/// How long after that the last replica of another version may still be asked.
const SETTLED: Duration = Duration::from_secs(5);
/// How long nothing is looked at, at most.
const LONGEST: Duration = Duration::from_secs(3600);

impl Keeper {
    /// Keeps what `settings` say, and serves it through `served`.
    pub fn new(client: Client, settings: Settings, served: Served) -> Self {
        Self { client, settings, served, held: None, suspended: false, rolled_out: None }
    }

    /// Puts everything right again and again, for ever; calls `told` after each time with how it went.
    pub async fn run(mut self, mut told: impl FnMut(Result<State, &KeepError>)) {
        let mut changes = self.changes();
        loop {
            let (pause, outcome) = match self.once().await {
                Ok((next, state)) => (if self.suspended { LOOK } else { until(next) }, Ok(state)),
                Err(error) => (RETRY, Err(error)),
            };
            told(outcome.as_ref().map(|state| *state));
            // A change or the pause, whichever comes first; a burst of changes is one change.
            if tokio::time::timeout(pause, changes.next()).await.is_ok() {
                while tokio::time::timeout(Duration::from_millis(50), changes.next()).await.is_ok_and(|c| c.is_some()) {
                }
            }
        }
    }

    /// Puts everything right once; when to look again, and how it is.
    async fn once(&mut self) -> Result<(OffsetDateTime, State), KeepError> {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.settings.namespace);
        let kept = match self.settings.source {
            Source::Own(lifetimes) => self.own(&secrets, lifetimes).await,
            Source::Provided => self.provided(&secrets).await,
        };
        if self.suspended {
            self.enforce().await?;
        }
        kept
    }

    /// Has the configurations ask the webhook, as soon as no replica of another version would be asked.
    async fn enforce(&mut self) -> kube::Result<()> {
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), &self.settings.namespace);
        let found = deployments.get_opt(&self.settings.deployment).await?;
        if !found.as_ref().is_some_and(is_rolled_out) {
            self.rolled_out = None;
            return Ok(());
        }
        if self.rolled_out.get_or_insert_with(Instant::now).elapsed() >= SETTLED {
            self.configurations().enforce().await?;
            (self.suspended, self.rolled_out) = (false, None);
        }
        Ok(())
    }

    fn configurations(&self) -> Configurations<'_> {
        let Settings { validating, mutating, manager, .. } = &self.settings;
        Configurations { client: &self.client, validating, mutating, manager }
    }

    async fn own(&mut self, secrets: &Api<Secret>, lifetimes: Lifetimes) -> Result<(OffsetDateTime, State), KeepError> {
        let (name, names) = (self.settings.secret.clone(), self.settings.names.clone());
        let names = names.as_slice();
        loop {
            let now = OffsetDateTime::now_utc();
            let seen = secrets.get_opt(&name).await?;
            let material = seen.as_ref().and_then(secret::material);
            let planned = plan::plan(material.as_ref(), names, now, lifetimes);
            let (fresh, why) = match (planned, material) {
                (Plan::Keep(next), Some(material)) => {
                    self.inject(Some(&material.bundle())).await?;
                    let another = self.served.set(&material.leaf, &material.leaf_key)?;
                    let (ends, authority_ends) = plan::ends(&material);
                    self.held = Some(material);
                    return Ok((next, State { ends, authority_ends, another }));
                }
                (Plan::Renew(why), Some(m)) => (m.renewed(names, now, lifetimes)?, why),
                (Plan::Announce(why), Some(m)) => (m.announced(now, lifetimes)?, why),
                // What comes next is trusted everywhere before it is used.
                (Plan::Promote, Some(m)) => {
                    self.inject(Some(&m.bundle())).await?;
                    (m.promoted(names, now, lifetimes)?, "the authority that was announced is trusted")
                }
                (Plan::Settle, Some(m)) => (m.settled(), "nobody serves a certificate of the old authority any more"),
                (Plan::Replace(why), _) => (self.replacement(now, lifetimes)?, why),
                (_, None) => (self.replacement(now, lifetimes)?, "there is none"),
            };
            match secret::store(secrets, &name, self.settings.manager, seen, &fresh).await {
                Ok(_) => tracing::info!(secret = name, why, "certificates changed"),
                // Another replica was faster: take what it stored.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// What takes the place of what was lost. What is held was in use a moment ago: it is put back and rolled over in steps, so
    /// that nobody notices; whoever has deleted the Secret to have new certificates gets them all the same.
    fn replacement(&self, now: OffsetDateTime, lifetimes: Lifetimes) -> Result<Material, rcgen::Error> {
        let names = &self.settings.names;
        let usable = |m: &&Material| !matches!(plan::plan(Some(m), names, now, lifetimes), Plan::Replace(_));
        match self.held.as_ref().filter(usable) {
            Some(held) if held.next.is_some() => Ok(held.clone()),
            Some(held) => held.clone().announced(now, lifetimes),
            None => issue::all(names, now, lifetimes),
        }
    }

    async fn provided(&mut self, secrets: &Api<Secret>) -> Result<(OffsetDateTime, State), KeepError> {
        let name = &self.settings.secret;
        let seen = secrets.get_opt(name).await?;
        let field = |key| seen.as_ref().and_then(|secret| secret::field(secret, key));
        let (Some(leaf), Some(key)) = (field(secret::LEAF), field(secret::LEAF_KEY)) else {
            return Err(KeepError::NotProvided(name.clone()));
        };
        let authority = field(secret::BUNDLE);
        // Without it somebody else sets the caBundle.
        self.inject(authority.as_deref()).await?;
        let another = self.served.set(&leaf, &key)?;
        let state = State { ends: plan::end(&leaf), authority_ends: authority.as_deref().and_then(plan::end), another };
        Ok((OffsetDateTime::now_utc() + LONGEST, state))
    }

    async fn inject(&mut self, bundle: Option<&str>) -> kube::Result<()> {
        self.suspended = self.configurations().inject(bundle).await?;
        Ok(())
    }

    fn changes(&self) -> BoxStream<'static, ()> {
        let (client, s) = (&self.client, &self.settings);
        let secrets = Api::<Secret>::namespaced(client.clone(), &s.namespace);
        let all = [
            changes(secrets, &s.secret),
            changes(Api::<ValidatingWebhookConfiguration>::all(client.clone()), &s.validating),
            changes(Api::<MutatingWebhookConfiguration>::all(client.clone()), &s.mutating),
        ];
        select_all(all).boxed()
    }
}

/// Tells when the object called `name` may have changed. The watch has its own back-off; an error is a reason to look again, no more.
fn changes<K>(api: Api<K>, name: &str) -> BoxStream<'static, ()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let name = name.to_owned();
    let note = move |event: Result<watcher::Event<K>, watcher::Error>| {
        if let Err(error) = event {
            tracing::warn!(name, error = words(&error), "watch interrupted");
        }
    };
    watcher(api, only).default_backoff().map(note).boxed()
}

/// Whether all Pods of `deployment` are of its newest template.
fn is_rolled_out(deployment: &Deployment) -> bool {
    let wanted = deployment.spec.replicas.unwrap_or(1);
    deployment.status.as_ref().is_some_and(|status| {
        let all = [status.replicas, status.updated_replicas, status.available_replicas];
        status.observed_generation == deployment.metadata.generation
            && all.iter().all(|count| count.unwrap_or_default() == wanted)
    })
}

fn until(next: OffsetDateTime) -> Duration {
    Duration::try_from(next - OffsetDateTime::now_utc())
        .unwrap_or(Duration::ZERO)
        .clamp(Duration::from_millis(100), LONGEST)
}
