//! What is kept between passes changes no decision, and only what changed is computed again.

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

use jiff::Timestamp;
use knative_operator_fleet::approval::Approved;
use knative_operator_fleet::decision::Input;
use knative_operator_fleet::revision::RevisionData;
use knative_operator_fleet::template::manifest;
use knative_operator_objects::ResourceKey;
use knative_operator_rules as rules;
use knative_operator_shared::api::KnativeFleet;
use knative_operator_shared::api::fleet::OnFailure;
use knative_operator_shared::fleet::stage::Stages;
use knative_operator_shared::label::{ADOPT, FLEET_OUTCOME};
use serde_json::{Value, json};

use super::*;
use crate::controller::fleets::contents::{self, CachedContents};
use crate::controller::fleets::selected::Selected;
use crate::controller::registry::Registry;

/// The revision that is rolled out.
const UPDATE: &str = "new";
/// The one before.
const BEFORE: &str = "old";

/// What was computed of each cluster: the record of its resource, the content with which that was
/// compared, and the content of the update.
type Computed = Vec<(Arc<ChildRecord>, Option<Arc<Wanted>>, Option<Arc<Wanted>>)>;

/// What is kept between passes.
#[derive(Default)]
struct Kept {
    children: Children,
    contents: Mutex<contents::Cache>,
    observed: Cache,
}

/// A hub with a fleet.
struct World {
    fleet: KnativeFleet,
    owner: Value,
    data: BTreeMap<&'static str, RevisionData>,
    /// Those of the revisions that are stored.
    known: BTreeSet<&'static str>,
    components: BTreeSet<Component>,
    clusters: Vec<ClusterProfileReference>,
    profiles: HashMap<ClusterProfileReference, Arc<ClusterProfile>>,
    registry: Registry,
    resources: BTreeMap<ChildKey, Value>,
}

impl World {
    /// A hub with a number of clusters, on which nothing is installed.
    fn new(clusters: usize) -> Self {
        let config = |value: &str| json!({"spec": {"config": {"features": {"a": value}}}});
        let before = json!({
            "serving": {"spec": {"version": "1.21.0"}},
            "overrides": [{"clusterSelector": {"matchLabels": {"tier": "canary"}}, "serving": config("canary")}],
        });
        let update = json!({
            "serving": {"spec": {"version": "1.22.0"}}, "eventing": {"spec": {"version": "1.22.0"}},
            "overrides": [{"propertySelector": {"matchLabels": {"region": "eu"}}, "serving": config("eu")}],
        });
        let canary = json!({"name": "canary", "clusterSelector": {"matchLabels": {"tier": "canary"}}});
        let mut fleet = json!({
            "apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
            "metadata": {"name": "prod", "namespace": "n", "uid": "1"},
            "spec": {"placement": {"clusterSelector": {}}, "rollout": {"stages": [canary]}},
        });
        json_patch::merge(&mut fleet["spec"], &update);
        let reference = |number| ClusterProfileReference { name: format!("c{number:04}"), namespace: "f".to_owned() };
        let read = |data: Value| serde_json::from_value::<RevisionData>(data).unwrap();
        let version = "operator.knative.dev/v1alpha1";
        let owner = json!({"apiVersion": version, "kind": "KnativeFleet", "name": "prod", "uid": "1"});
        let mut world = Self {
            fleet: serde_json::from_value(fleet).unwrap(),
            owner,
            data: BTreeMap::from([(UPDATE, read(update)), (BEFORE, read(before))]),
            known: BTreeSet::from([UPDATE, BEFORE]),
            components: BTreeSet::from(Component::ALL),
            clusters: (0..clusters).map(reference).collect(),
            profiles: HashMap::new(),
            registry: Registry::default(),
            resources: BTreeMap::new(),
        };
        (0..clusters).for_each(|index| world.describe(index, "prod", &json!([]), "True"));
        world
    }

    /// Replaces the ClusterProfile of a cluster.
    fn describe(&mut self, index: usize, tier: &str, properties: &Value, healthy: &str) {
        let cluster = &self.clusters[index];
        let profile = json!({
            "metadata": {"name": cluster.name, "namespace": cluster.namespace, "labels": {"tier": tier}}, "spec": {},
            "status": {"conditions": [{"type": "ControlPlaneHealthy", "status": healthy}], "properties": properties},
        });
        self.profiles.insert(cluster.clone(), Arc::new(serde_json::from_value(profile).unwrap()));
    }

    fn revisions(&self) -> BTreeMap<&str, &RevisionData> {
        self.data.iter().filter(|(name, _)| self.known.contains(*name)).map(|(name, data)| (*name, data)).collect()
    }

    /// Stores the resource of `key` as the fleet writes it for `revision`.
    fn write(&mut self, key: &ChildKey, revision: &str) {
        let template = {
            let cache = Mutex::default();
            let contents = CachedContents::new(self.revisions(), &self.profiles, &[], &cache);
            contents.template(revision, &key.0, key.1)
        };
        let Some(template) = template else { return };
        let record = ChildRecord {
            revision: revision.to_owned(),
            previous: None,
            stage: None,
            outcome: "Progressing".parse().ok(),
            updated_at: "2026-01-01T00:00:00Z".to_owned(),
            version: template.spec.get("version").and_then(Value::as_str).map(str::to_owned),
        };
        let stored = manifest(("n", "prod", &self.owner), &key.0.name, &key.0, key.1, &template, &record);
        self.resources.insert(key.clone(), stored);
        self.report(key);
    }

    /// Changes the stored resource of `key`, if there is one.
    fn change(&mut self, key: &ChildKey, change: &Value) {
        if let Some(resource) = self.resources.get_mut(key) {
            json_patch::merge(resource, change);
            self.report(key);
        }
    }

    fn delete(&mut self, key: &ChildKey) {
        if let Some(resource) = self.resources.remove(key) {
            self.registry.remove(&ResourceKey::of(&rules::parse(key.1, &resource).unwrap()));
        }
    }

    /// The watch reports the resource of `key`.
    fn report(&self, key: &ChildKey) {
        self.registry.set(Arc::new(rules::parse(key.1, &self.resources[key]).unwrap()));
    }

    /// A pass: what it observes, and decides.
    fn pass(&self, kept: &mut Kept) -> String {
        let selected = Selected::from(self.clusters.clone());
        let mut children = std::mem::take(&mut kept.children);
        children.collect(&self.fleet, &self.registry);
        let left = children.left(&selected);
        children.add_others(&self.fleet, (&selected, &left), &self.registry);
        let stages = Stages::of(&self.fleet.spec.rollout).unwrap();
        let contents = CachedContents::new(self.revisions(), &self.profiles, &[], &kept.contents);
        let (refused, claims, occupied) = (HashMap::new(), HashMap::new(), HashSet::new());
        let observation = FleetObservation {
            fleet: &self.fleet,
            owner: &self.owner,
            stages: &stages,
            components: self.components.clone(),
            profiles: &self.profiles,
            children: &children,
            contents: &contents,
            refused: &refused,
            claims: &claims,
            occupied: &occupied,
        };
        let mut observed = Observed::new(&observation, &mut kept.observed);
        let members: Vec<Member> = self.clusters.iter().map(|cluster| observed.member(cluster)).collect();
        let (had_clusters, uncounted, approvals) = (BTreeSet::new(), BTreeMap::new(), Approved::new());
        let input = Input {
            stages: &stages,
            members: &members,
            had_clusters: &had_clusters,
            uncounted: &uncounted,
            current: Some(BEFORE).filter(|name| self.known.contains(name)),
            update: UPDATE,
            has_failed: false,
            generation: 1,
            on_failure: OnFailure::Pause,
            is_paused: false,
            pause: "",
            approvals: &approvals,
            contents: &contents,
            now: Timestamp::UNIX_EPOCH,
            installable: OnceLock::new(),
        };
        let decision = input.decide();
        contents.forget_others(&selected.set);
        let summary = format!("{:?}", children.own().keys());
        kept.children = children;
        format!("{summary}\n{members:#?}\n{decision:#?}")
    }
}

/// Numbers that look random, and are the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % limit
    }

    fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

/// Something happens to a cluster, to its resource `key`, or to the fleet.
fn happen(world: &mut World, numbers: &mut Numbers) {
    let index = numbers.below(world.clusters.len());
    let key = (world.clusters[index].clone(), numbers.of(&Component::ALL));
    let annotations = |annotations: Value| json!({"metadata": {"annotations": annotations}});
    match numbers.below(16) {
        0..=2 => {
            let regions = ["eu", "us"].map(|region| json!({"name": "region", "value": region}));
            let region = numbers.of(&[&regions[..1], &regions[1..], &[]]);
            let memory = json!({"name": "memory", "value": numbers.below(9).to_string()});
            let properties = Value::from([region, &[memory]].concat());
            let (tier, healthy) = (numbers.of(&["canary", "prod"]), numbers.of(&["True", "True", "False"]));
            world.describe(index, tier, &properties, healthy);
        }
        3 => drop(world.profiles.remove(&key.0)),
        4..=6 => {
            let revision = numbers.of(&[UPDATE, BEFORE]);
            world.write(&key, revision);
        }
        7 => world.delete(&key),
        8 | 9 => {
            let status = |status: &str| {
                let ready = json!({"type": "Ready", "status": status, "lastTransitionTime": "2026-01-01T00:00:00Z"});
                json!({"status": {"version": "1.22.0", "conditions": [ready]}})
            };
            let status = numbers.of(&[status("True"), status("False"), json!({"status": null})]);
            world.change(&key, &status);
        }
        10 => {
            let outcome = numbers.of(&["Succeeded", "Progressing/NotReadyBefore", "Failed/1/NotReady"]);
            world.change(&key, &annotations(json!({FLEET_OUTCOME: outcome})));
        }
        11 => world.change(&key, &json!({"spec": {"config": {"features": {"b": "somebody"}}}})),
        12 => world.change(&key, &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})),
        13 => {
            // The fleet may adopt it.
            world.change(&key, &json!({"metadata": {"ownerReferences": null}}));
            let revision = numbers.of(&[json!(UPDATE), json!("of another fleet"), Value::Null]);
            world.change(&key, &annotations(json!({ADOPT: "true", FLEET_REVISION: revision})));
        }
        14 => {
            if !world.known.remove(BEFORE) {
                world.known.insert(BEFORE);
            }
        }
        _ => {
            if !world.components.remove(&Component::Eventing) {
                world.components.insert(Component::Eventing);
            }
        }
    }
}

#[test]
fn what_is_kept_between_passes_changes_no_decision() {
    for seed in 0..12 {
        let (mut world, mut numbers, mut kept) = (World::new(4), Numbers(seed), Kept::default());
        for step in 0..60 {
            happen(&mut world, &mut numbers);
            let fresh = world.pass(&mut Kept::default());
            assert_eq!(world.pass(&mut kept), fresh, "seed {seed}, step {step}");
        }
    }
}

#[test]
fn one_cluster_that_changed_is_computed_again_and_no_other() {
    let mut world = World::new(1000);
    let keys: Vec<ChildKey> = world.clusters.iter().map(|cluster| (cluster.clone(), Component::Serving)).collect();
    keys.iter().for_each(|key| world.write(key, UPDATE));
    let mut kept = Kept::default();
    let mut pass = |world: &World| -> Computed {
        world.pass(&mut kept);
        let contents = CachedContents::new(world.revisions(), &world.profiles, &[], &kept.contents);
        let computed = keys.iter().map(|key| {
            let ObservedChild { record, wanted, .. } = &kept.observed.resources[key];
            (Arc::clone(record), wanted.clone(), contents.of(UPDATE, &key.0, key.1))
        });
        computed.collect()
    };
    // How many of each are not the same as before.
    let count = |before: &Computed, after: &Computed| {
        let (mut resources, mut compared, mut contents) = (0, 0, 0);
        for (a, b) in before.iter().zip(after) {
            resources += usize::from(!Arc::ptr_eq(&a.0, &b.0));
            compared += usize::from(a.1.as_ref().map(Arc::as_ptr) != b.1.as_ref().map(Arc::as_ptr));
            contents += usize::from(a.2.as_ref().map(Arc::as_ptr) != b.2.as_ref().map(Arc::as_ptr));
        }
        (resources, compared, contents)
    };
    let first = pass(&world);
    assert_eq!(count(&first, &pass(&world)), (0, 0, 0), "nothing changed");
    world.change(&keys[7], &json!({"metadata": {"annotations": {FLEET_OUTCOME: "Succeeded"}}}));
    let second = pass(&world);
    assert_eq!(count(&first, &second), (1, 0, 0), "a resource changed");
    world.describe(8, "prod", &json!([{"name": "region", "value": "eu"}]), "True");
    let third = pass(&world);
    assert_eq!(count(&second, &third), (0, 1, 1), "a property changed, by which an override selects");
    world.describe(9, "prod", &json!([]), "False");
    assert_eq!(count(&third, &pass(&world)), (0, 0, 0), "the health of a cluster changed");
}
