//! What changed on the hub, for the task of all fleets: it looks only at the fleets that a change
//! concerns.

use std::collections::HashSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference, Knative};
use knative_operator_shared::fleet::placement::unhealthy;
use tokio::sync::Notify;

/// Uids of the fleets that own `resource`.
pub fn fleets_of(resource: &Knative) -> impl Iterator<Item = &str> {
    let owners = resource.meta().owner_references.iter().flatten();
    let fleets = owners.filter(|owner| owner.kind == "KnativeFleet" && owner.uid.len() <= MAX_UID);
    fleets.map(|owner| owner.uid.as_str())
}

/// What changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// What concerns any fleet.
    pub any: bool,
    /// ClusterProfiles that are new or have other labels.
    pub relabelled: HashSet<ClusterProfileReference>,
    /// Clusters with a resource that changed, or with another health of their ClusterProfile.
    pub clusters: HashSet<ClusterProfileReference>,
    /// Uids of the owners of resources that changed, and of fleets with an answer.
    pub owners: HashSet<String>,
}

/// Changes that are kept apart. More concern any fleet; nobody takes them where fleets are not
/// managed.
const MAX_CHANGES: usize = 10_000;
/// Length of a uid, in bytes. Longer ones are no object's.
const MAX_UID: usize = 64;

impl Changes {
    /// Keeps within the limit.
    fn bound(&mut self) {
        if self.any || self.clusters.len() + self.relabelled.len() + self.owners.len() > MAX_CHANGES {
            *self = Self { any: true, ..Self::default() };
        }
    }
}

/// Collects changes until they are taken.
#[derive(Debug, Default)]
pub struct HubChanges {
    changes: Mutex<Changes>,
    notify: Notify,
}

impl HubChanges {
    fn record(&self, change: impl FnOnce(&mut Changes)) {
        let mut changes = self.lock();
        change(&mut changes);
        changes.bound();
        drop(changes);
        self.notify.notify_one();
    }

    fn lock(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Any fleet may be concerned.
    pub fn record_any(&self) {
        self.record(|changes| changes.any = true);
    }

    /// `resource` changed, or is gone.
    pub fn record_resource(&self, resource: &Knative) {
        self.record(|changes| {
            changes.clusters.extend(resource.common().cluster_profile_ref.clone());
            changes.owners.extend(fleets_of(resource).map(str::to_owned));
        });
    }

    /// The ClusterProfile of `reference` was `before`, and is `after`. Most changes are heartbeats
    /// of its manager.
    pub fn record_profile(
        &self,
        reference: &ClusterProfileReference,
        before: Option<&ClusterProfile>,
        after: &ClusterProfile,
    ) {
        match before {
            Some(before) if before.metadata.labels == after.metadata.labels => {
                if unhealthy(Some(before)) != unhealthy(Some(after)) {
                    self.record(|changes| changes.clusters.extend([reference.clone()]));
                }
            }
            _ => self.record(|changes| changes.relabelled.extend([reference.clone()])),
        }
    }

    /// The fleet with `uid` has an answer.
    pub fn record_answer(&self, uid: &str) {
        self.record(|changes| changes.owners.extend([uid.to_owned()]));
    }

    /// Waits for changes, and takes them.
    pub async fn changed(&self) -> Changes {
        self.notify.notified().await;
        std::mem::take(&mut self.lock())
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;
    use knative_operator_shared::api::Component;
    use knative_operator_shared::rules;
    use serde_json::{Value, json};

    use super::*;

    fn profile(labels: &Value, healthy: &str, heartbeat: &str) -> ClusterProfile {
        let condition = json!({"type": "ControlPlaneHealthy", "status": healthy, "lastTransitionTime": heartbeat});
        serde_json::from_value(
            json!({"metadata": {"name": "a", "namespace": "f", "labels": labels, "resourceVersion": heartbeat},
            "spec": {}, "status": {"conditions": [condition]}}),
        )
        .unwrap()
    }

    #[test]
    fn heartbeat_of_a_manager_concerns_no_fleet() {
        let reference = ClusterProfileReference { name: "a".to_owned(), namespace: "f".to_owned() };
        let changes = HubChanges::default();
        let first = profile(&json!({"env": "prod"}), "True", "1");
        let after = |before: Option<&ClusterProfile>, after: &ClusterProfile| {
            changes.record_profile(&reference, before, after);
            changes.changed().now_or_never()
        };
        let relabelled = Changes { relabelled: HashSet::from([reference.clone()]), ..Changes::default() };
        assert_eq!(after(None, &first), Some(relabelled.clone()));
        assert_eq!(after(Some(&first), &profile(&json!({"env": "prod"}), "True", "2")), None);
        let one = Changes { clusters: HashSet::from([reference.clone()]), ..Changes::default() };
        assert_eq!(after(Some(&first), &profile(&json!({"env": "prod"}), "False", "3")), Some(one));
        assert_eq!(after(Some(&first), &profile(&json!({"env": "test"}), "True", "4")), Some(relabelled));
    }

    #[test]
    fn changes_that_nobody_takes_are_bounded() {
        let changes = HubChanges::default();
        let resource = |kind: &str, uid: &str| {
            let owner = json!({"apiVersion": "v1", "kind": kind, "name": "f", "uid": uid});
            let serving = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
                "metadata": {"name": "a", "namespace": "n", "ownerReferences": [owner]}, "spec": {}});
            rules::parse(Component::Serving, &serving).unwrap()
        };
        changes.record_resource(&resource("ConfigMap", "1"));
        changes.record_resource(&resource("KnativeFleet", &"1".repeat(MAX_UID + 1)));
        assert_eq!(*changes.lock(), Changes::default());
        for number in 0..=MAX_CHANGES {
            changes.record_resource(&resource("KnativeFleet", &number.to_string()));
        }
        assert_eq!(*changes.lock(), Changes { any: true, ..Changes::default() });
    }
}
