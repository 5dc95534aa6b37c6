//! The Leases that a replica knows, for people who look for a fault.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use jiff::Timestamp;
use serde::Serialize;

/// What a replica knows of its Leases, by name, if that is enabled. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Leases(Option<Arc<Mutex<BTreeMap<String, LeaseState>>>>);

/// What a replica knows of a Lease.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct LeaseState {
    /// Its name.
    pub name: String,
    /// Its holder; empty if it has none.
    pub holder: String,
    /// Whether this replica holds it.
    pub is_own: bool,
    /// When this replica renewed it last, or saw another renewal.
    pub renewed_at: String,
    /// How many renewals this replica has seen since `holder` has it.
    pub renewals: u64,
}

impl Leases {
    /// None yet; they are recorded.
    pub fn enabled() -> Self {
        Self(Some(Arc::default()))
    }

    /// The Lease `name` was renewed by `holder`, which is this replica if `is_own`.
    pub fn renewed(&self, name: String, holder: &str, is_own: bool) {
        let Some(all) = &self.0 else { return };
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        let before = all.get(&name).filter(|before| before.holder == holder).map_or(0, |before| before.renewals);
        let state = LeaseState {
            name: name.clone(),
            holder: holder.to_owned(),
            is_own,
            renewed_at: Timestamp::now().to_string(),
            renewals: before + 1,
        };
        all.insert(name, state);
    }

    /// All of them.
    pub fn states(&self) -> Vec<LeaseState> {
        let all = self.0.as_ref().map(|all| all.lock().unwrap_or_else(PoisonError::into_inner));
        all.map(|all| all.values().cloned().collect()).unwrap_or_default()
    }
}
