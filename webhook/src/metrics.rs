//! Metrics of the webhook.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use knative_operator_certs::CertificateState;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use time::OffsetDateTime;

/// One of the two webhooks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Webhook {
    /// `/validate`
    Validate,
    /// `/mutate`
    Mutate,
}

/// Outcome of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Admitted.
    Allowed,
    /// Admitted with warnings.
    Warned,
    /// Refused.
    Refused,
    /// Rejected because of overload.
    Busy,
}

/// Where an answer about a permission comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// A recent answer.
    Cache,
    /// The API server.
    ApiServer,
}

/// Labels of a review, all with a fixed set of values.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReviewLabels {
    webhook: &'static str,
    kind: &'static str,
    operation: &'static str,
    outcome: &'static str,
    rule: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct WebhookLabels {
    webhook: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct AuthorizationLabels {
    source: &'static str,
    result: &'static str,
}

/// The webhook's metrics.
#[derive(Clone)]
pub struct Metrics {
    reviews: Family<ReviewLabels, Counter>,
    durations: Family<WebhookLabels, Histogram, fn() -> Histogram>,
    invalid: Family<WebhookLabels, Counter>,
    authorizations: Family<AuthorizationLabels, Counter>,
    authorization_durations: Histogram,
    certificate_starts: Gauge<f64, AtomicU64>,
    certificate_expires: Gauge<f64, AtomicU64>,
    authority_starts: Gauge<f64, AtomicU64>,
    authority_expires: Gauge<f64, AtomicU64>,
    reloads: Counter,
    failures: Counter,
    suspended: Gauge,
}

impl Metrics {
    /// The metrics, and the registry that exports them.
    pub fn registered() -> (Self, Registry) {
        let metrics = Self {
            reviews: Family::default(),
            // From 50 microseconds to 0.8 seconds.
            durations: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_05, 2.0, 15))),
            invalid: Family::default(),
            authorizations: Family::default(),
            // From 0.5 milliseconds to 4 seconds.
            authorization_durations: Histogram::new(exponential_buckets(0.000_5, 2.0, 14)),
            certificate_starts: Gauge::default(),
            certificate_expires: Gauge::default(),
            authority_starts: Gauge::default(),
            authority_expires: Gauge::default(),
            reloads: Counter::default(),
            failures: Counter::default(),
            suspended: Gauge::default(),
        };
        let mut registry = Registry::default();
        registry.register(
            "admission_requests",
            "Answered reviews, by outcome and first violated rule",
            metrics.reviews.clone(),
        );
        registry.register(
            "admission_request_duration_seconds",
            "Duration of reviews, from the request headers to the response",
            metrics.durations.clone(),
        );
        registry.register(
            "admission_unreadable_requests",
            "Requests that were not valid reviews",
            metrics.invalid.clone(),
        );
        registry.register(
            "admission_authorization_checks",
            "Checks of the permissions of users, by result and by source of the answer",
            metrics.authorizations.clone(),
        );
        registry.register(
            "admission_authorization_request_duration_seconds",
            "Duration of SubjectAccessReviews",
            metrics.authorization_durations.clone(),
        );
        let starts = "Time from which the served certificate is valid, as Unix time";
        registry.register(
            "webhook_certificate_not_before_timestamp_seconds",
            starts,
            metrics.certificate_starts.clone(),
        );
        let expires = "Expiry of the served certificate, as Unix time";
        registry.register("webhook_certificate_expiry_timestamp_seconds", expires, metrics.certificate_expires.clone());
        let starts = "Time from which the authority of the certificate is valid, as Unix time";
        registry.register("webhook_authority_not_before_timestamp_seconds", starts, metrics.authority_starts.clone());
        let expires = "Expiry of the authority of the certificate, as Unix time";
        registry.register("webhook_authority_expiry_timestamp_seconds", expires, metrics.authority_expires.clone());
        registry.register("webhook_certificate_reloads", "Changes of the served certificate", metrics.reloads.clone());
        registry.register(
            "webhook_certificate_failures",
            "Failures to manage the certificates",
            metrics.failures.clone(),
        );
        registry.register(
            "webhook_admission_suspended",
            "1 while a webhook configuration has the match condition rolled-out, which suspends the webhook",
            metrics.suspended.clone(),
        );
        (metrics, registry)
    }

    /// Counts a review. `rule` is the first violated rule, or empty.
    pub fn count_review(
        &self,
        webhook: Webhook,
        kind: &'static str,
        operation: &'static str,
        outcome: Outcome,
        rule: &'static str,
    ) {
        let outcome = match outcome {
            Outcome::Allowed => "allowed",
            Outcome::Warned => "warned",
            Outcome::Refused => "refused",
            Outcome::Busy => "busy",
        };
        self.reviews.get_or_create(&ReviewLabels { webhook: name(webhook), kind, operation, outcome, rule }).inc();
    }

    /// Records the duration of a request.
    pub fn observe_duration(&self, webhook: Webhook, duration: Duration) {
        self.durations.get_or_create(&WebhookLabels { webhook: name(webhook) }).observe(duration.as_secs_f64());
    }

    /// Counts an invalid request.
    pub fn count_invalid(&self, webhook: Webhook) {
        self.invalid.get_or_create(&WebhookLabels { webhook: name(webhook) }).inc();
    }

    /// Counts a check of a permission. `result` is allowed, denied or error.
    pub fn count_authorization(&self, source: Source, result: &'static str) {
        let source = match source {
            Source::Cache => "cache",
            Source::ApiServer => "api_server",
        };
        self.authorizations.get_or_create(&AuthorizationLabels { source, result }).inc();
    }

    /// Records the duration of a SubjectAccessReview.
    pub fn observe_authorization(&self, duration: Duration) {
        self.authorization_durations.observe(duration.as_secs_f64());
    }

    /// Sets when the certificate and its authority are valid, as Unix time; counts a changed
    /// certificate.
    #[allow(clippy::cast_precision_loss)] // seconds since 1970 fit
    pub fn set_certificate(&self, state: &CertificateState) {
        let unix = |time: Option<OffsetDateTime>| time.map_or(0.0, |time| time.unix_timestamp() as f64);
        self.certificate_starts.set(unix(state.certificate.map(|validity| validity.starts)));
        self.certificate_expires.set(unix(state.certificate.map(|validity| validity.expires)));
        self.authority_starts.set(unix(state.authority.map(|validity| validity.starts)));
        self.authority_expires.set(unix(state.authority.map(|validity| validity.expires)));
        if state.changed {
            self.reloads.inc();
        }
    }

    /// Sets whether a migration suspends a webhook.
    pub fn set_suspended(&self, suspended: bool) {
        self.suspended.set(i64::from(suspended));
    }

    /// Counts a failure to manage the certificates.
    pub fn count_certificate_failure(&self) {
        self.failures.inc();
    }
}

fn name(webhook: Webhook) -> &'static str {
    match webhook {
        Webhook::Validate => "validate",
        Webhook::Mutate => "mutate",
    }
}

#[cfg(test)]
mod tests {
    use knative_operator_certs::Validity;
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn validity_and_suspension_are_exported() {
        let (metrics, registry) = Metrics::registered();
        let time = |seconds| OffsetDateTime::from_unix_timestamp(seconds).unwrap();
        let validity = |starts, expires| Some(Validity { starts: time(starts), expires: time(expires) });
        let state = CertificateState { certificate: validity(1, 2), authority: validity(3, 4), changed: true };
        metrics.set_certificate(&state);
        metrics.set_suspended(true);
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        for line in [
            "webhook_certificate_not_before_timestamp_seconds 1.0\n",
            "webhook_certificate_expiry_timestamp_seconds 2.0\n",
            "webhook_authority_not_before_timestamp_seconds 3.0\n",
            "webhook_authority_expiry_timestamp_seconds 4.0\n",
            "webhook_certificate_reloads_total 1\n",
            "webhook_admission_suspended 1\n",
        ] {
            assert!(text.contains(line), "{line}{text}");
        }
    }
}
