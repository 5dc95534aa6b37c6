//! The properties of ClusterProfiles that fleets select by. Others may change all the time, and are
//! not shown.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use knative_operator_shared::api::{ClusterProfileReference, Properties};
use knative_operator_shared::fleet::selector::{Traits, selected_properties};
use serde_json::Value;

use super::model::ClusterView;
use super::snapshot::{Key, Snapshot, Watched};

/// What selectors look at in `profile`, a ClusterProfile.
pub fn traits(profile: &Value) -> Traits<'static> {
    let labels = profile.pointer("/metadata/labels").cloned().unwrap_or_default();
    let properties = Properties::read(profile);
    Traits {
        labels: Cow::Owned(serde_json::from_value(labels).unwrap_or_default()),
        are_unreadable: properties.is_err(),
        properties: Cow::Owned(properties.unwrap_or_default().0),
    }
}

/// What selectors look at in each ClusterProfile.
pub type AllTraits = BTreeMap<ClusterProfileReference, Traits<'static>>;

/// What selectors look at in the ClusterProfiles in `snapshot`.
pub fn all_traits(snapshot: &Snapshot) -> AllTraits {
    let of = |((namespace, name), profile): (&Key, &Arc<Value>)| {
        (ClusterProfileReference { name: name.clone(), namespace: namespace.clone() }, traits(profile))
    };
    snapshot.all(Watched::Profiles).map(of).collect()
}

/// Adds those of the ClusterProfiles in `snapshot` to `clusters`.
pub fn add(snapshot: &Snapshot, clusters: &mut BTreeMap<String, ClusterView>) {
    let fleets = snapshot.all(Watched::Fleets).filter_map(|(key, _)| snapshot.fleet(key));
    let mut selected: BTreeSet<String> = BTreeSet::new();
    fleets.for_each(|fleet| selected.extend(selected_properties(&fleet.spec).into_iter().map(str::to_owned)));
    if selected.is_empty() {
        return;
    }
    for ((namespace, name), profile) in snapshot.all(Watched::Profiles) {
        let (Some(cluster), Ok(Properties(mut properties))) =
            (clusters.get_mut(&format!("{namespace}/{name}")), Properties::read(profile))
        else {
            continue;
        };
        properties.retain(|name, _| selected.contains(name));
        cluster.properties = properties;
    }
}
