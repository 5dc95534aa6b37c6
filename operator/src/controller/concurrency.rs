//! Limits concurrent reconciles (`--max-concurrent-reconciles`). Reconciles that wait for an
//! unreachable spoke hold no permit, and those of one spoke at most a quarter of all permits: it
//! may answer slowly. Those of one namespace hold at most three quarters: its users may have many
//! slow spokes, or servers of manifests.

use knative_operator_runtime::queues::Queues;
use knative_operator_shared::api::ClusterProfileReference;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};

use crate::diagnostics::report::Reconciles;
use crate::metrics::{GaugeGuard, Metrics};

/// Permits for reconciles.
pub struct ReconcilePermits {
    all: Semaphore,
    /// Number of permits.
    most: usize,
    /// Number of permits of each spoke.
    of_spoke: usize,
    spokes: Queues,
    namespaces: Queues,
}

/// A permit; drop it at the end of the reconcile.
pub struct ReconcilePermit<'a> {
    _permit: Option<SemaphorePermit<'a>>,
    _of_namespace: Option<OwnedSemaphorePermit>,
    _of_spoke: Option<OwnedSemaphorePermit>,
    _running: GaugeGuard,
}

impl ReconcilePermits {
    /// At most `most` concurrent reconciles.
    pub fn new(most: usize) -> Self {
        let (of_spoke, of_namespace) = ((most / 4).max(1), (most * 3).div_ceil(4));
        let (spokes, namespaces) = (Queues::new(of_spoke), Queues::new(of_namespace));
        Self { all: Semaphore::new(most), most, of_spoke, spokes, namespaces }
    }

    /// Waits for a permit for a resource in `namespace` of the hub: first for one of `spoke`, then
    /// for one of the namespace, without a permit that others could use.
    pub async fn acquire(
        &self,
        namespace: &str,
        spoke: Option<&ClusterProfileReference>,
        metrics: &Metrics,
    ) -> ReconcilePermit<'_> {
        let queued = metrics.queued();
        // The semaphores are never closed, so these calls only wait.
        let of_spoke = match spoke {
            Some(spoke) => self.spokes.enter(&spoke.to_string()).await,
            None => None,
        };
        let of_namespace = self.namespaces.enter(namespace).await;
        let permit = self.all.acquire().await.ok();
        drop(queued);
        ReconcilePermit {
            _permit: permit,
            _of_namespace: of_namespace,
            _of_spoke: of_spoke,
            _running: metrics.running(),
        }
    }

    /// The limits, and what `metrics` counts.
    pub fn report(&self, metrics: &Metrics) -> Reconciles {
        let (waiting, running) = metrics.waiting_and_running();
        Reconciles { waiting, running, limit: self.most, limit_per_spoke: self.of_spoke }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    #[test]
    fn one_spoke_has_a_quarter_of_the_permits() {
        let (permits, (metrics, _)) = (ReconcilePermits::new(8), Metrics::registered());
        let spoke = |name: &str| ClusterProfileReference { namespace: "n".to_owned(), name: name.to_owned() };
        let (slow, other) = (spoke("slow"), spoke("other"));
        let acquire = |namespace: &str, spoke| permits.acquire(namespace, spoke, &metrics).now_or_never();
        let mut of_slow: Vec<_> = (0..2).filter_map(|_| acquire("a", Some(&slow))).collect();
        assert_eq!(of_slow.len(), 2);
        let mut third = Box::pin(permits.acquire("a", Some(&slow), &metrics));
        assert!(third.as_mut().now_or_never().is_none());
        let expected = Reconciles { waiting: 1, running: 2, limit: 8, limit_per_spoke: 2 };
        assert_eq!(permits.report(&metrics), expected);
        // The rest is for others.
        let others = [("a", Some(&other)), ("a", None), ("a", None), ("a", None), ("b", None), ("b", None)]
            .map(|of| acquire(of.0, of.1));
        assert!(others.iter().all(Option::is_some));
        drop((others, of_slow.pop()));
        assert!(third.now_or_never().is_some());
        drop(of_slow);
        assert!(acquire("a", Some(&other)).is_some());
    }

    #[test]
    fn one_namespace_has_three_quarters_of_the_permits() {
        let (permits, (metrics, _)) = (ReconcilePermits::new(8), Metrics::registered());
        let acquire = |namespace: &str| permits.acquire(namespace, None, &metrics).now_or_never();
        let of_one: Vec<_> = (0..10).filter_map(|_| acquire("one")).collect();
        let of_other: Vec<_> = (0..10).filter_map(|_| acquire("other")).collect();
        assert_eq!((of_one.len(), of_other.len()), (6, 2));
    }

    #[test]
    fn a_spoke_has_a_permit() {
        assert_eq!([1, 3, 4, 32].map(|most| ReconcilePermits::new(most).of_spoke), [1, 1, 1, 8]);
    }
}
