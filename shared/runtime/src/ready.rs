//! Readiness of a process.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// The parts that a process waits for before it is ready. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeSet<&'static str>>>);

impl Readiness {
    /// Not ready until all `parts` are set.
    pub fn waiting_for(parts: &[&'static str]) -> Self {
        Self(Arc::new(Mutex::new(parts.iter().copied().collect())))
    }

    /// Sets whether `part` is ready.
    pub fn set(&self, part: &'static str, ready: bool) {
        let mut missing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if ready {
            missing.remove(part)
        } else {
            missing.insert(part)
        };
    }

    /// Parts that are not ready.
    pub fn missing(&self) -> Vec<&'static str> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}
