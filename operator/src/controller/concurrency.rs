//! Limits concurrent reconciles (`--max-concurrent-reconciles`). Reconciles that wait for an
//! unreachable spoke hold no permit, and those of one spoke at most a quarter of all permits: it
//! may answer slowly.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

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
    /// Those of the spokes that have reconciles.
    spokes: Mutex<HashMap<ClusterProfileReference, Weak<Semaphore>>>,
}

/// A permit; drop it at the end of the reconcile.
pub struct ReconcilePermit<'a> {
    _permit: Option<SemaphorePermit<'a>>,
    _of_spoke: Option<OwnedSemaphorePermit>,
    _running: GaugeGuard,
}

impl ReconcilePermits {
    /// At most `most` concurrent reconciles.
    pub fn new(most: usize) -> Self {
        Self { all: Semaphore::new(most), most, of_spoke: (most / 4).max(1), spokes: Mutex::default() }
    }

    /// Waits for a permit: first for one of `spoke`, without a permit that others could use.
    pub async fn acquire(&self, spoke: Option<&ClusterProfileReference>, metrics: &Metrics) -> ReconcilePermit<'_> {
        let queued = metrics.queued();
        // The semaphores are never closed, so these calls only wait.
        let of_spoke = match spoke {
            Some(spoke) => self.of(spoke).acquire_owned().await.ok(),
            None => None,
        };
        let permit = self.all.acquire().await.ok();
        drop(queued);
        ReconcilePermit { _permit: permit, _of_spoke: of_spoke, _running: metrics.running() }
    }

    /// The limits, and what `metrics` counts.
    pub fn report(&self, metrics: &Metrics) -> Reconciles {
        let (waiting, running) = metrics.waiting_and_running();
        Reconciles { waiting, running, limit: self.most, limit_per_spoke: self.of_spoke }
    }

    fn of(&self, spoke: &ClusterProfileReference) -> Arc<Semaphore> {
        let mut spokes = self.spokes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = spokes.get(spoke).and_then(Weak::upgrade) {
            return known;
        }
        spokes.retain(|_, semaphore| semaphore.strong_count() > 0);
        let semaphore = Arc::new(Semaphore::new(self.of_spoke));
        spokes.insert(spoke.clone(), Arc::downgrade(&semaphore));
        semaphore
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
        let acquire = |spoke| permits.acquire(spoke, &metrics).now_or_never();
        let mut of_slow: Vec<_> = (0..2).filter_map(|_| acquire(Some(&slow))).collect();
        assert_eq!(of_slow.len(), 2);
        let mut third = Box::pin(permits.acquire(Some(&slow), &metrics));
        assert!(third.as_mut().now_or_never().is_none());
        let expected = Reconciles { waiting: 1, running: 2, limit: 8, limit_per_spoke: 2 };
        assert_eq!(permits.report(&metrics), expected);
        // The rest is for others.
        let others = [acquire(Some(&other)), acquire(None), acquire(None), acquire(None), acquire(None), acquire(None)];
        assert!(others.iter().all(Option::is_some));
        drop((others, of_slow.pop()));
        assert!(third.now_or_never().is_some());
        drop(of_slow);
        assert!(acquire(Some(&other)).is_some());
        assert_eq!(permits.spokes.lock().unwrap().len(), 1);
    }

    #[test]
    fn a_spoke_has_a_permit() {
        assert_eq!([1, 3, 4, 32].map(|most| ReconcilePermits::new(most).of_spoke), [1, 1, 1, 8]);
    }
}
