//! What the webhook counts.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

/// Which of the two webhooks was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Webhook {
    /// `/validate`
    Validate,
    /// `/mutate`
    Mutate,
}

/// What came of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It may go on.
    Allowed,
    /// It may go on, with warnings.
    Warned,
    /// It was refused.
    Refused,
    /// There were too many.
    Busy,
}

/// Labels of a review: all out of closed sets.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Review {
    webhook: &'static str,
    kind: &'static str,
    operation: &'static str,
    outcome: &'static str,
    rule: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    webhook: &'static str,
}

/// The webhook's metrics.
#[derive(Clone)]
pub struct Metrics {
    reviews: Family<Review, Counter>,
    durations: Family<Of, Histogram, fn() -> Histogram>,
    unreadable: Family<Of, Counter>,
    certificate_ends: Gauge<f64, AtomicU64>,
    authority_ends: Gauge<f64, AtomicU64>,
    reloads: Counter,
    failures: Counter,
}

impl Metrics {
    /// The metrics, and the registry that tells them.
    pub fn registered() -> (Self, Registry) {
        let metrics = Self {
            reviews: Family::default(),
            // From 50 microseconds to 0.8 seconds.
            durations: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.000_05, 2.0, 15))),
            unreadable: Family::default(),
            certificate_ends: Gauge::default(),
            authority_ends: Gauge::default(),
            reloads: Counter::default(),
            failures: Counter::default(),
        };
        let mut registry = Registry::default();
        registry.register(
            "admission_requests",
            "Reviews answered, by outcome and by the first rule that refused or warned",
            metrics.reviews.clone(),
        );
        registry.register(
            "admission_request_duration_seconds",
            "How long a review took, from its head to its answer",
            metrics.durations.clone(),
        );
        registry.register("admission_unreadable_requests", "Requests that were no review", metrics.unreadable.clone());
        let ends = "When the certificate that is served ends, as Unix time";
        registry.register("webhook_certificate_expiry_timestamp_seconds", ends, metrics.certificate_ends.clone());
        let ends = "When the authority of the certificate ends, as Unix time";
        registry.register("webhook_authority_expiry_timestamp_seconds", ends, metrics.authority_ends.clone());
        registry.register(
            "webhook_certificate_reloads",
            "How often another certificate was served from then on",
            metrics.reloads.clone(),
        );
        registry.register(
            "webhook_certificate_failures",
            "How often the certificates could not be put right",
            metrics.failures.clone(),
        );
        (metrics, registry)
    }

    /// Counts a review. `rule` is the first that refused or warned, empty if none did.
    pub fn reviewed(
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
        self.reviews.get_or_create(&Review { webhook: name(webhook), kind, operation, outcome, rule }).inc();
    }

    /// A request was answered.
    pub fn answered(&self, webhook: Webhook, took: Duration) {
        self.durations.get_or_create(&Of { webhook: name(webhook) }).observe(took.as_secs_f64());
    }

    /// A request was no review.
    pub fn unreadable(&self, webhook: Webhook) {
        self.unreadable.get_or_create(&Of { webhook: name(webhook) }).inc();
    }

    /// Tells when the certificate and its authority end, as Unix time, and whether it is another one than before.
    #[allow(clippy::cast_precision_loss)] // seconds since 1970 fit
    pub fn certificate(&self, ends: Option<i64>, authority_ends: Option<i64>, another: bool) {
        self.certificate_ends.set(ends.unwrap_or_default() as f64);
        self.authority_ends.set(authority_ends.unwrap_or_default() as f64);
        if another {
            self.reloads.inc();
        }
    }

    /// The certificates could not be put right.
    pub fn certificate_failed(&self) {
        self.failures.inc();
    }
}

fn name(webhook: Webhook) -> &'static str {
    match webhook {
        Webhook::Validate => "validate",
        Webhook::Mutate => "mutate",
    }
}
