//! Limits concurrent reconciles (`--max-concurrent-reconciles`). Reconciles that wait for an
//! unreachable spoke hold no permit.

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::metrics::{GaugeGuard, Metrics};

/// Permits for reconciles.
pub struct ReconcilePermits(Semaphore);

/// A permit; drop it at the end of the reconcile.
pub struct ReconcilePermit<'a> {
    _permit: Option<SemaphorePermit<'a>>,
    _running: GaugeGuard,
}

impl ReconcilePermits {
    /// At most `most` concurrent reconciles.
    pub fn new(most: usize) -> Self {
        Self(Semaphore::new(most))
    }

    /// Waits for a permit.
    pub async fn acquire(&self, metrics: &Metrics) -> ReconcilePermit<'_> {
        let queued = metrics.queued();
        // The semaphore is never closed, so this call only waits.
        let permit = self.0.acquire().await.ok();
        drop(queued);
        ReconcilePermit { _permit: permit, _running: metrics.running() }
    }
}
