//! Clusters that a fleet selects more than once, by several ClusterProfiles. Pure.

use std::collections::{BTreeMap, HashSet};

use knative_operator_shared::api::{ClusterProfileReference, Component};

use super::children::{ChildKey, Children};
use super::installed::{cluster_uid, is_occupied};

/// What several ClusterProfiles of one cluster share.
#[derive(Debug, Default)]
pub struct Shared {
    /// ClusterProfiles that own nothing on their cluster, with the one that is counted.
    pub duplicates: BTreeMap<ClusterProfileReference, ClusterProfileReference>,
    /// Resources whose component another ClusterProfile of the fleet owns on the cluster.
    pub occupied: HashSet<ChildKey>,
}

/// What the ClusterProfiles `clusters` of the fleet share. The one whose resource came first owns
/// the installation.
pub fn shared(children: &Children, clusters: &[ClusterProfileReference]) -> Shared {
    if !children.has_occupied() {
        return Shared::default();
    }
    let child = |cluster: &ClusterProfileReference, component| children.own().get(&(cluster.clone(), component));
    let mut owners: BTreeMap<(Component, &str), &ClusterProfileReference> = BTreeMap::new();
    let mut owning: HashSet<&ClusterProfileReference> = HashSet::new();
    let all =
        || Component::ALL.into_iter().flat_map(|component| clusters.iter().map(move |cluster| (component, cluster)));
    for (component, cluster) in all() {
        if let Some(resource) = child(cluster, component)
            && let Some(uid) = cluster_uid(resource)
            && !is_occupied(resource)
        {
            owners.entry((component, uid)).or_insert(cluster);
            owning.insert(cluster);
        }
    }
    let mut shared = Shared::default();
    for (component, cluster) in all() {
        if let Some(resource) = child(cluster, component).filter(|resource| is_occupied(resource))
            && let Some(owner) = cluster_uid(resource).and_then(|uid| owners.get(&(component, uid)))
        {
            shared.occupied.insert((cluster.clone(), component));
            if !owning.contains(cluster) {
                shared.duplicates.entry(cluster.clone()).or_insert_with(|| (*owner).clone());
            }
        }
    }
    shared
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use knative_operator_rules as rules;
    use knative_operator_shared::api::Knative;
    use knative_operator_shared::condition::INSTALL_SUCCEEDED;
    use knative_operator_shared::label::CLUSTER_UID;
    use serde_json::json;

    use super::*;
    use crate::controller::conditions::OCCUPIED;

    fn resource(component: Component, cluster: &str, uid: &str, is_occupied: bool) -> (ChildKey, Arc<Knative>) {
        let reference = ClusterProfileReference { name: cluster.to_owned(), namespace: "n".to_owned() };
        let (status, reason) = if is_occupied { ("False", OCCUPIED) } else { ("True", "") };
        let resource = json!({
            "apiVersion": "operator.knative.dev/v1beta1", "kind": component.kind(),
            "metadata": {"name": cluster, "namespace": "n"}, "spec": {"clusterProfileRef": reference},
            "status": {
                "annotations": {CLUSTER_UID: uid},
                "conditions": [{"type": INSTALL_SUCCEEDED, "status": status, "reason": reason}],
            },
        });
        ((reference, component), Arc::new(rules::parse(component, &resource).unwrap()))
    }

    fn names(shared: &Shared) -> Vec<(&str, &str)> {
        shared.duplicates.iter().map(|(cluster, owner)| (cluster.name.as_str(), owner.name.as_str())).collect()
    }

    #[test]
    fn only_occupied_profiles_of_a_cluster_of_the_fleet_are_duplicates() {
        let serving = |cluster, uid, is_occupied| resource(Component::Serving, cluster, uid, is_occupied);
        let own =
            [serving("a", "1", true), serving("b", "1", false), serving("c", "2", true), serving("d", "3", false)];
        let children = Children::from_iter(own);
        let clusters: Vec<_> = children.own().keys().map(|(cluster, _)| cluster.clone()).collect();
        // The cluster of "c" belongs to somebody else.
        assert_eq!(names(&shared(&children, &clusters)), [("a", "b")]);
        // "b" leaves the fleet.
        assert!(shared(&children, &[clusters[0].clone()]).duplicates.is_empty());
    }

    #[test]
    fn profiles_that_each_own_a_component_are_both_counted() {
        let (serving, eventing) = (Component::Serving, Component::Eventing);
        let own = [
            resource(serving, "a", "1", true),
            resource(serving, "b", "1", false),
            resource(eventing, "a", "1", false),
            resource(eventing, "b", "1", true),
        ];
        let children = Children::from_iter(own);
        let clusters =
            ["a", "b"].map(|name| ClusterProfileReference { name: name.to_owned(), namespace: "n".to_owned() });
        let shared = shared(&children, &clusters);
        assert!(shared.duplicates.is_empty(), "{shared:?}");
        assert_eq!(shared.occupied, [(clusters[0].clone(), serving), (clusters[1].clone(), eventing)].into());
    }
}
