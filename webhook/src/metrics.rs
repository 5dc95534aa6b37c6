//! What the webhook counts.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Labels of a review. `kind` and `operation` are bounded by what the webhook configurations select.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Review {
    webhook: &'static str,
    kind: String,
    operation: String,
    outcome: &'static str,
    rule: &'static str,
}

/// The webhook's metrics.
#[derive(Clone, Default)]
pub struct Metrics {
    reviews: Family<Review, Counter>,
    certificate_ends: Gauge<f64, AtomicU64>,
}

impl Metrics {
    /// The metrics, and the registry that tells them.
    pub fn registered() -> (Self, Registry) {
        let (metrics, mut registry) = (Self::default(), Registry::default());
        registry.register("admission_requests", "Reviews answered, by outcome and by the rule that refused", metrics.reviews.clone());
        registry.register(
            "webhook_certificate_expiry_timestamp_seconds",
            "When the certificate that is served ends, as Unix time",
            metrics.certificate_ends.clone(),
        );
        (metrics, registry)
    }

    /// Counts a review. `rule` is the first that refused it, empty if none did.
    pub fn reviewed(&self, webhook: &'static str, kind: &str, operation: &str, rule: Option<&'static str>) {
        let outcome = if rule.is_some() { "refused" } else { "allowed" };
        let labels = Review { webhook, kind: kind.to_owned(), operation: operation.to_owned(), outcome, rule: rule.unwrap_or_default() };
        self.reviews.get_or_create(&labels).inc();
    }

    /// Tells when the certificate ends.
    pub fn certificate_ends(&self, at: Option<i64>) {
        #[allow(clippy::cast_precision_loss)] // seconds since 1970 fit
        self.certificate_ends.set(at.unwrap_or_default() as f64);
    }
}
