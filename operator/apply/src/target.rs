//! The cluster and the plan that an apply works on.

use std::collections::HashSet;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use kube::Client;

use super::observed::ObservedState;
use knative_operator_objects::Kinds;
use knative_operator_objects::ObjectId;
use knative_operator_objects::plan::{Item, Phase, Plan};

/// The cluster and the plan for it.
pub struct Target<'a> {
    /// Client of the cluster.
    pub client: &'a Client,
    /// Desired objects.
    pub plan: &'a Plan,
    /// Kinds that neither the plan nor Kubernetes defines.
    pub kinds: &'a Kinds,
    /// Observed state of the cluster.
    pub observed: &'a ObservedState,
    /// Mark of the owner of the installation.
    pub mark: &'a str,
    /// Set when the cluster becomes unreachable; no further write is tried.
    pub unreachable: AtomicBool,
    /// Definitions that the API server refused; their custom resources don't wait for them.
    pub refused_definitions: Mutex<HashSet<ObjectId>>,
}

impl Target<'_> {
    /// Records that the API server refused `item`.
    pub fn record_refusal(&self, item: &Item) {
        if item.phase() == Phase::Definitions {
            self.refused_definitions.lock().unwrap_or_else(PoisonError::into_inner).insert(item.id.clone());
        }
    }

    /// Whether the API server refused `definition` recently.
    pub fn is_refused(&self, definition: &Item) -> bool {
        self.refused_definitions.lock().unwrap_or_else(PoisonError::into_inner).contains(&definition.id)
    }
}
