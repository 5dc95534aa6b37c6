//! What changed on the hub, for the task of all fleets: it looks only at the fleets that a change
//! concerns.

use std::collections::{BTreeSet, HashSet};
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock};

use knative_operator_shared::api::{ClusterProfile, ClusterProfileReference, Knative};
use knative_operator_shared::fleet::placement::unhealthy;
use knative_operator_shared::fleet::selector::Traits;
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
    /// ClusterProfiles that are new, or have other labels or properties that a fleet selects by:
    /// what one fleet selects, others can't have.
    pub relabeled: HashSet<ClusterProfileReference>,
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
        let kept = [self.clusters.len(), self.relabeled.len(), self.owners.len()];
        if self.any || kept.iter().sum::<usize>() > MAX_CHANGES {
            *self = Self { any: true, ..Self::default() };
        }
    }
}

/// Collects changes until they are taken.
#[derive(Debug, Default)]
pub struct HubChanges {
    changes: Mutex<Changes>,
    /// Names of the properties that fleets select by.
    selected: RwLock<BTreeSet<String>>,
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

    /// Fleets select by the properties with these `names` from now on. Others may change all the
    /// time, such as free memory, and concern no fleet.
    pub fn select(&self, names: BTreeSet<String>) {
        *self.selected.write().unwrap_or_else(PoisonError::into_inner) = names;
    }

    /// The ClusterProfile of `reference` was `before`, and is `after`. Most changes are heartbeats
    /// of its manager.
    pub fn record_profile(
        &self,
        reference: &ClusterProfileReference,
        before: Option<&ClusterProfile>,
        after: &ClusterProfile,
    ) {
        let (former, traits) = (Traits::of(before), Traits::of(Some(after)));
        match before {
            Some(before) if former.labels == traits.labels && former.are_unreadable == traits.are_unreadable => {
                if unhealthy(Some(before)) != unhealthy(Some(after)) {
                    self.record(|changes| changes.clusters.extend([reference.clone()]));
                }
                let selected = self.selected.read().unwrap_or_else(PoisonError::into_inner);
                let is_other = former.differing_properties(&traits).iter().any(|name| selected.contains(*name));
                let is_published = !selected.is_empty() && former.has_properties() != traits.has_properties();
                if is_other || is_published {
                    self.record(|changes| changes.relabeled.extend([reference.clone()]));
                }
            }
            _ => self.record(|changes| changes.relabeled.extend([reference.clone()])),
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
    use knative_operator_rules as rules;
    use knative_operator_shared::api::Component;
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
        let relabeled = Changes { relabeled: HashSet::from([reference.clone()]), ..Changes::default() };
        assert_eq!(after(None, &first), Some(relabeled.clone()));
        assert_eq!(after(Some(&first), &profile(&json!({"env": "prod"}), "True", "2")), None);
        let one = Changes { clusters: HashSet::from([reference.clone()]), ..Changes::default() };
        assert_eq!(after(Some(&first), &profile(&json!({"env": "prod"}), "False", "3")), Some(one));
        assert_eq!(after(Some(&first), &profile(&json!({"env": "test"}), "True", "4")), Some(relabeled));
    }

    #[test]
    fn property_concerns_fleets_if_one_selects_by_it() {
        let reference = ClusterProfileReference { name: "a".to_owned(), namespace: "f".to_owned() };
        let changes = HubChanges::default();
        let with = |region: &str, memory: &str, observed: &str| -> ClusterProfile {
            let property =
                |name: &str, value: &str| json!({"name": name, "value": value, "lastObservedTime": observed});
            let mut profile = json!(profile(&json!({"env": "prod"}), "True", observed));
            profile["status"]["properties"] = json!([property("region", region), property("memory", memory)]);
            serde_json::from_value(profile).unwrap()
        };
        let first = with("eu", "1Gi", "1");
        let after = |after: &ClusterProfile| {
            changes.record_profile(&reference, Some(&first), after);
            changes.changed().now_or_never()
        };
        assert_eq!(after(&with("us", "2Gi", "2")), None, "no fleet selects by properties");
        changes.select(BTreeSet::from(["region".to_owned(), "zone".to_owned()]));
        for memory in ["1Gi", "2Gi"] {
            assert_eq!(after(&with("eu", memory, "3")), None);
        }
        let relabeled = Some(Changes { relabeled: HashSet::from([reference.clone()]), ..Changes::default() });
        assert_eq!(after(&with("us", "2Gi", "4")), relabeled);
        let mut gone = with("eu", "1Gi", "5");
        gone.status.as_mut().unwrap().properties.0.remove("region");
        assert_eq!(after(&gone), relabeled);
        // None is published any more.
        changes.select(BTreeSet::from(["zone".to_owned()]));
        assert_eq!(after(&gone), None);
        gone.status.as_mut().unwrap().properties.0.clear();
        assert_eq!(after(&gone), relabeled);
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
