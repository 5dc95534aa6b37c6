//! The properties of ClusterProfiles that fleets select by. Others concern no fleet.

use std::collections::BTreeSet;

use knative_operator_shared::fleet::selector::{overriding_properties, selected_properties};

use super::store::{FleetKey, Store, StoredFleet};
use knative_operator_fleet::template::label_value;

/// Names of those that `stored`, the fleet called `key`, selects by: those in its spec, and those
/// in the overrides of revisions that its clusters may have during a rollout: after it failed, they
/// return to what each had.
fn of_fleet<'s>(store: &'s Store, key: &FleetKey, stored: &'s StoredFleet) -> BTreeSet<&'s str> {
    let mut names = selected_properties(&stored.fleet.spec);
    let status = stored.fleet.status.as_ref();
    let revisions = status.map(|status| [&status.current_revision, &status.update_revision]);
    let in_use: BTreeSet<&String> = revisions.into_iter().flatten().flatten().collect();
    let mut failed = status.and_then(|status| status.failed_revisions.as_ref()).into_iter().flatten();
    let has_failed = failed.any(|failed| in_use.contains(failed));
    let label = label_value(&key.1);
    for (name, revision) in store.revisions.get(&key.0).into_iter().flatten() {
        if in_use.contains(name) || has_failed && revision.label == label {
            names.extend(overriding_properties(&revision.data.overrides));
        }
    }
    names
}

/// Names of those that any fleet selects by.
pub fn of_all(store: &Store) -> BTreeSet<String> {
    let names = store.fleets.iter().flat_map(|(key, stored)| of_fleet(store, key, stored));
    names.map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use knative_operator_fleet::revision::{Revision, Revisions};
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn properties_of_the_spec_and_of_revisions_in_use_are_selected() {
        let by = |name: &str| json!({"matchLabels": {name: "x"}});
        let overriding = |name: &str| json!([{"propertySelector": by(name), "serving": {"spec": {}}}]);
        let fleet = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
            "metadata": {"name": "prod", "namespace": "n"},
            "spec": {"placement": {"propertySelector": by("placement")}, "serving": {"spec": {}}},
            "status": {"currentRevision": "current", "updateRevision": "update"}});
        let revision = |name: &str, overrides: Value| {
            let data = json!({"serving": {"spec": {}}, "overrides": overrides});
            let revision = Revision {
                name: name.to_owned(),
                number: 1,
                failed_generation: None,
                owner: None,
                label: if name == "elsewhere" { "other" } else { "prod" }.to_owned(),
                data: serde_json::from_value(data).unwrap(),
            };
            (name.to_owned(), revision)
        };
        let revisions = Revisions::from([
            revision("current", overriding("now")),
            revision("update", json!([])),
            revision("earlier", overriding("earlier")),
            revision("elsewhere", overriding("elsewhere")),
        ]);
        let mut store = Store::default();
        let stored = StoredFleet { fleet: serde_json::from_value(fleet).unwrap(), unreadable: None };
        store.fleets.insert(("n".to_owned(), "prod".to_owned()), stored);
        store.revisions.insert("n".to_owned(), revisions);
        assert_eq!(of_all(&store), BTreeSet::from(["now".to_owned(), "placement".to_owned()]));
        // Clusters return to what each had.
        let stored = store.fleets.values_mut().next().unwrap();
        stored.fleet.status.as_mut().unwrap().failed_revisions = Some(vec!["update".to_owned()]);
        assert_eq!(of_all(&store), BTreeSet::from(["earlier", "now", "placement"].map(str::to_owned)));
    }
}
