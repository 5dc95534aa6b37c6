//! How many passes are made at the same time (`--max-concurrent-reconciles`). Whoever waits for a spoke to answer at all takes no turn:
//! dead spokes hold up nobody.

use tokio::sync::{Semaphore, SemaphorePermit};

use crate::metrics::{Level, Metrics};

/// Turns of passes.
pub struct Turns(Semaphore);

/// A turn; drop it when the pass is over.
pub struct Turn<'a> {
    _permit: Option<SemaphorePermit<'a>>,
    _running: Level,
}

impl Turns {
    /// So many at the same time.
    pub fn new(most: usize) -> Self {
        Self(Semaphore::new(most))
    }

    /// Waits for a turn.
    pub async fn take(&self, metrics: &Metrics) -> Turn<'_> {
        let queued = metrics.queued();
        // The semaphore is never closed, so this only waits.
        let permit = self.0.acquire().await.ok();
        drop(queued);
        Turn { _permit: permit, _running: metrics.running() }
    }
}
