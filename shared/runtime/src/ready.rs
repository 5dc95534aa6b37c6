//! Whether a process is ready: a list of what it still waits for.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

/// What a process still waits for before it is ready. Clones share the list.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<Mutex<BTreeSet<&'static str>>>);

impl Readiness {
    /// Not ready while any of `parts` is missing.
    pub fn waiting_for(parts: &[&'static str]) -> Self {
        Self(Arc::new(Mutex::new(parts.iter().copied().collect())))
    }

    /// `part` is there, or missing again.
    pub fn set(&self, part: &'static str, there: bool) {
        let mut missing = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if there {
            missing.remove(part)
        } else {
            missing.insert(part)
        };
    }

    /// What is missing.
    pub fn missing(&self) -> Vec<&'static str> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect()
    }
}
