//! Manages the certificates: issues, renews, stores, injects and serves them. Each replica runs a
//! manager; they agree through the Secret, where the first write wins.

use std::time::{Duration, Instant};

use futures::StreamExt;
use futures::stream::{BoxStream, select_all};
use k8s_openapi::api::admissionregistration::v1::{MutatingWebhookConfiguration, ValidatingWebhookConfiguration};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use knative_operator_runtime::error_text;
use knative_operator_runtime::watch::watch;
use kube::runtime::watcher;
use kube::{Api, Client};
use time::OffsetDateTime;

use crate::inject::{Configurations, Suspension};
use crate::issue::{self, Lifetimes};
use crate::material::Material;
use crate::resolver::{CertificateResolver, ServeError};
use crate::rotation::{self, RotationStep};
use crate::secret;
use crate::validity::Validity;

/// Issuer of the certificates.
#[derive(Clone, Copy, Debug)]
pub enum CertificateSource {
    /// The webhook itself.
    Own(Lifetimes),
    /// Someone else (a user, cert-manager) writes the Secret: `tls.crt`, `tls.key`, and `ca.crt` as
    /// CA bundle.
    Provided,
}

/// Settings of the certificates.
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
    /// Field manager of writes.
    pub manager: &'static str,
    /// Issuer of the certificates.
    pub source: CertificateSource,
}

/// Why the certificates can't be managed.
#[derive(Debug, thiserror::Error)]
pub enum CertificateError {
    /// The API server refused a request.
    #[error("the API server refused a request about the certificates")]
    Api(#[from] kube::Error),
    /// A certificate can't be issued.
    #[error("cannot issue a certificate")]
    Issue(#[from] rcgen::Error),
    /// A certificate can't be served.
    #[error("cannot serve the stored certificate")]
    Serve(#[from] ServeError),
    /// The Secret of the provider is incomplete.
    #[error("Secret {0} has no tls.crt and tls.key; create them, or wait for your certificate provider")]
    NotProvided(String),
}

/// State of the certificates.
#[derive(Clone, Copy, Debug)]
pub struct CertificateState {
    /// Validity of the served certificate.
    pub certificate: Option<Validity>,
    /// Validity of its authority.
    pub authority: Option<Validity>,
    /// Whether the served certificate changed.
    pub changed: bool,
}

/// What a check found.
#[derive(Clone, Copy, Debug)]
pub struct Report<'a> {
    /// State of the certificates, or why they can't be managed.
    pub certificates: Result<CertificateState, &'a CertificateError>,
    /// Whether the match condition `rolled-out` suspends a webhook, as far as is known.
    pub suspended: bool,
}

/// Manages the certificates.
pub struct CertificateManager {
    client: Client,
    settings: Settings,
    resolver: CertificateResolver,
    /// The last valid contents of the Secret.
    last_material: Option<Material>,
    /// Whether a webhook is suspended, and since when this process knows it.
    suspended: Option<(Suspension, Instant)>,
    /// Since when the Deployment is rolled out, while a webhook is suspended.
    rolled_out_since: Option<Instant>,
}

/// Delay before a retry.
const RETRY_DELAY: Duration = Duration::from_secs(2);
/// Interval of checks whether the Deployment is rolled out.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);
/// Time after the rollout in which API servers may still call a replica of another version.
const RESUME_DELAY: Duration = Duration::from_secs(5);
/// Time after which a suspension ends in any case; the chart sets an end 15 minutes after the
/// upgrade.
const SUSPENSION_LIMIT: Duration = Duration::from_secs(16 * 60);
/// Maximum interval of checks.
const MAX_INTERVAL: Duration = Duration::from_secs(3600);

impl CertificateManager {
    /// A manager that serves the certificates through `resolver`.
    pub fn new(client: Client, settings: Settings, resolver: CertificateResolver) -> Self {
        Self { client, settings, resolver, last_material: None, suspended: None, rolled_out_since: None }
    }

    /// Manages the certificates until the task ends; calls `report` after each check.
    pub async fn run(mut self, mut report: impl FnMut(Report<'_>)) {
        let mut changes = self.changes();
        loop {
            let (delay, outcome) = match self.check().await {
                Ok((next, state)) => {
                    (if self.suspended.is_some() { CHECK_INTERVAL } else { duration_until(next) }, Ok(state))
                }
                Err(error) => (RETRY_DELAY, Err(error)),
            };
            report(Report { certificates: outcome.as_ref().map(|state| *state), suspended: self.suspended.is_some() });
            // Waits for a change or the delay; a burst of changes counts as one.
            if tokio::time::timeout(delay, changes.next()).await.is_ok() {
                while tokio::time::timeout(Duration::from_millis(50), changes.next()).await.is_ok_and(|c| c.is_some()) {
                }
            }
        }
    }

    /// Checks the certificates once; returns the time of the next check, and their state.
    async fn check(&mut self) -> Result<(OffsetDateTime, CertificateState), CertificateError> {
        let secrets = Api::<Secret>::namespaced(self.client.clone(), &self.settings.namespace);
        let checked = match self.settings.source {
            CertificateSource::Own(lifetimes) => self.check_own(&secrets, lifetimes).await,
            CertificateSource::Provided => self.check_provided(&secrets).await,
        };
        if let Some((suspension, known_since)) = self.suspended {
            // Without a readable time, it must end, too.
            let is_over = suspension.is_over(Timestamp::now()) || known_since.elapsed() > SUSPENSION_LIMIT;
            self.resume(is_over).await?;
        }
        checked
    }

    /// Resumes suspended webhooks once no API server would call a replica of another version, or if
    /// the time of the suspension `is_over`: nobody is asked about deletions until then.
    async fn resume(&mut self, is_over: bool) -> kube::Result<()> {
        let deployments = Api::<Deployment>::namespaced(self.client.clone(), &self.settings.namespace);
        let found = deployments.get_opt(&self.settings.deployment).await?;
        if !is_over && !found.as_ref().is_some_and(is_rolled_out) {
            self.rolled_out_since = None;
            return Ok(());
        }
        if is_over || self.rolled_out_since.get_or_insert_with(Instant::now).elapsed() >= RESUME_DELAY {
            self.configurations().resume().await?;
            (self.suspended, self.rolled_out_since) = (None, None);
        }
        Ok(())
    }

    fn configurations(&self) -> Configurations<'_> {
        let Settings { validating, mutating, manager, .. } = &self.settings;
        Configurations { client: &self.client, validating, mutating, manager }
    }

    async fn check_own(
        &mut self,
        secrets: &Api<Secret>,
        lifetimes: Lifetimes,
    ) -> Result<(OffsetDateTime, CertificateState), CertificateError> {
        let (name, names) = (self.settings.secret.clone(), self.settings.names.clone());
        let names = names.as_slice();
        loop {
            let now = OffsetDateTime::now_utc();
            let stored = secrets.get_opt(&name).await?;
            let material = stored.as_ref().and_then(secret::material);
            let step = rotation::next_step(material.as_ref(), names, now, lifetimes);
            let (new_material, reason) = match (step, material) {
                (RotationStep::Keep(next), Some(material)) => {
                    self.inject(Some(&material.bundle())).await?;
                    let changed = self.resolver.set(&material.leaf, &material.leaf_key)?;
                    let certificate = Validity::of(&material.leaf);
                    let authority = Validity::of(&material.authority.certificate);
                    self.last_material = Some(material);
                    return Ok((next, CertificateState { certificate, authority, changed }));
                }
                (RotationStep::Renew(reason), Some(m)) => (m.with_new_leaf(names, now, lifetimes)?, reason),
                (RotationStep::Announce(reason), Some(m)) => (m.with_next_authority(now, lifetimes)?, reason),
                // The next authority is trusted everywhere before it issues.
                (RotationStep::Promote, Some(m)) => {
                    self.inject(Some(&m.bundle())).await?;
                    (m.with_promoted_authority(names, now, lifetimes)?, "the next authority is trusted")
                }
                (RotationStep::Finish, Some(m)) => {
                    (m.without_old_authority(), "no replica serves a certificate of the old authority")
                }
                (RotationStep::Replace(reason), _) => (self.replacement(now, lifetimes)?, reason),
                (_, None) => (self.replacement(now, lifetimes)?, "there are no certificates"),
            };
            match secret::store(secrets, &name, self.settings.manager, stored, &new_material).await {
                Ok(_) => tracing::info!(secret = name, reason, "changed the certificates"),
                // Another replica was faster: use what it stored.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Replaces lost contents of the Secret. The last contents were in use a moment ago: they are
    /// stored again and rotated in steps, without interruption; so deleting the Secret still renews
    /// the certificates.
    fn replacement(&self, now: OffsetDateTime, lifetimes: Lifetimes) -> Result<Material, rcgen::Error> {
        let names = &self.settings.names;
        let usable =
            |m: &&Material| !matches!(rotation::next_step(Some(m), names, now, lifetimes), RotationStep::Replace(_));
        match self.last_material.as_ref().filter(usable) {
            Some(last_material) if last_material.next.is_some() => Ok(last_material.clone()),
            Some(last_material) => last_material.clone().with_next_authority(now, lifetimes),
            None => issue::issue_all(names, now, lifetimes),
        }
    }

    async fn check_provided(
        &mut self,
        secrets: &Api<Secret>,
    ) -> Result<(OffsetDateTime, CertificateState), CertificateError> {
        let name = self.settings.secret.clone();
        let stored = secrets.get_opt(&name).await?;
        let field = |key| stored.as_ref().and_then(|secret| secret::field(secret, key));
        let (Some(leaf), Some(key)) = (field(secret::LEAF), field(secret::LEAF_KEY)) else {
            // Finds out whether a webhook is suspended.
            self.inject(None).await?;
            return Err(CertificateError::NotProvided(name));
        };
        // Until it is corrected, the former certificate is served, whose authority stays.
        if let Err(error) = CertificateResolver::check(&leaf, &key) {
            self.inject(None).await?;
            return Err(error.into());
        }
        let authority = field(secret::BUNDLE);
        // Without an authority, someone else sets the caBundle.
        self.inject(authority.as_deref()).await?;
        let changed = self.resolver.set(&leaf, &key)?;
        let state = CertificateState {
            certificate: Validity::of(&leaf),
            authority: authority.as_deref().and_then(Validity::of),
            changed,
        };
        Ok((OffsetDateTime::now_utc() + MAX_INTERVAL, state))
    }

    async fn inject(&mut self, bundle: Option<&str>) -> kube::Result<()> {
        let suspension = self.configurations().inject(bundle).await?;
        let known_since = self.suspended.map_or_else(Instant::now, |(_, since)| since);
        self.suspended = suspension.map(|suspension| (suspension, known_since));
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

/// Notifies of changes of the object `name`. The watch backs off by itself; an error triggers a
/// check, too.
fn changes<K>(api: Api<K>, name: &str) -> BoxStream<'static, ()>
where
    K: kube::Resource + Clone + std::fmt::Debug + serde::de::DeserializeOwned + Send + 'static,
{
    let config = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let name = name.to_owned();
    let log_error = move |event: Result<watcher::Event<K>, watcher::Error>| {
        if let Err(error) = event {
            tracing::warn!(name, error = error_text(&error), "watch interrupted");
        }
    };
    watch(api, config).map(log_error).boxed()
}

/// Whether all Pods of `deployment` have its newest template, and one of them is available: another
/// one that can't start must not suspend the webhooks for long.
fn is_rolled_out(deployment: &Deployment) -> bool {
    deployment.status.as_ref().is_some_and(|status| {
        status.observed_generation == deployment.metadata.generation
            && status.updated_replicas == status.replicas
            && status.available_replicas.unwrap_or_default() > 0
    })
}

fn duration_until(next: OffsetDateTime) -> Duration {
    Duration::try_from(next - OffsetDateTime::now_utc())
        .unwrap_or(Duration::ZERO)
        .clamp(Duration::from_millis(100), MAX_INTERVAL)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use http::{Method, Request, Response};
    use k8s_openapi::ByteString;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn authority_of_a_certificate_that_cannot_be_served_is_not_injected() {
        let lifetimes = Lifetimes { authority: time::Duration::days(90), leaf: time::Duration::days(30) };
        let issue = || issue::issue_all(&["a".to_owned()], OffsetDateTime::now_utc(), lifetimes).unwrap();
        let (first, second) = (issue(), issue());
        for (key, expected) in [(&first.leaf_key, 2), (&second.leaf_key, 0)] {
            let text = |text: &str| ByteString(text.as_bytes().to_vec());
            let data = json!({
                (secret::LEAF): text(&first.leaf),
                (secret::LEAF_KEY): text(key),
                (secret::BUNDLE): text(&first.authority.certificate),
            });
            let patches = Arc::<Mutex<usize>>::default();
            let counted = Arc::clone(&patches);
            let answer = move |request: Request<Body>| {
                *counted.lock().unwrap() += usize::from(*request.method() == Method::PATCH);
                let webhook =
                    json!({"name": "w", "clientConfig": {}, "sideEffects": "None", "admissionReviewVersions": ["v1"]});
                let object = if request.uri().path().contains("/secrets/") {
                    json!({"metadata": {"name": "s"}, "data": data})
                } else {
                    json!({"metadata": {"name": "c"}, "webhooks": [webhook]})
                };
                let response = Response::builder().status(200).body(Body::from(object.to_string().into_bytes()));
                async { Ok::<_, std::convert::Infallible>(response.unwrap()) }
            };
            let settings = Settings {
                namespace: "n".to_owned(),
                secret: "s".to_owned(),
                names: Vec::new(),
                validating: "c".to_owned(),
                mutating: "c".to_owned(),
                deployment: "d".to_owned(),
                manager: "m",
                source: CertificateSource::Provided,
            };
            let client = Client::new(tower::service_fn(answer), "n");
            let mut manager = CertificateManager::new(client, settings, CertificateResolver::default());
            let outcome = manager.check().await;
            assert_eq!((outcome.is_ok(), *patches.lock().unwrap()), (expected > 0, expected), "{outcome:?}");
        }
    }
}
