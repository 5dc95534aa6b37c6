//! Tests of what is kept between passes.

use jiff::Timestamp;
use knative_operator_fleet::timer::Phase;
use knative_operator_rules as rules;
use serde_json::json;

use super::*;

/// A fleet, and the key of its resource.
fn fleet() -> (KnativeFleet, ChildKey) {
    let meta = json!({"name": "f", "namespace": "n", "uid": "7"});
    let fleet = json!({"metadata": meta, "spec": {"placement": {"clusterSelector": {}}}});
    let cluster = ClusterProfileReference { name: "a".to_owned(), namespace: "f".to_owned() };
    (serde_json::from_value(fleet).unwrap(), (cluster, Component::Serving))
}

/// A resource of version `version`, of the fleet with uid `owner`.
fn resource(version: &str, owner: Option<&str>) -> Arc<Knative> {
    let reference = |uid| json!({"apiVersion": "v1", "kind": "KnativeFleet", "name": "f", "uid": uid});
    let owners: Vec<_> = owner.into_iter().map(reference).collect();
    let resource = json!({
        "apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
        "metadata": {"name": "a", "namespace": "n", "uid": "1", "resourceVersion": version, "ownerReferences": owners},
        "spec": {"clusterProfileRef": {"name": "a", "namespace": "f"}},
    });
    Arc::new(rules::parse(Component::Serving, &resource).unwrap())
}

#[test]
fn no_grace_period_passes_while_the_fleet_is_paused() {
    let leaving = BTreeSet::from([ClusterProfileReference { name: "a".to_owned(), namespace: "f".to_owned() }]);
    let mut state = FleetState::default();
    let mut observed = |is_paused, now| {
        let observed = state.observe_leaving(&leaving, is_paused, SignedDuration::from_secs(now));
        observed.values().next().unwrap().as_secs()
    };
    assert_eq!((observed(false, 10), observed(false, 12), observed(true, 13)), (0, 2, 0));
    // Nothing happens during the pause.
    assert_eq!((observed(false, 20), observed(false, 21)), (0, 1));
}

#[test]
fn grace_period_begins_again_after_an_outage() {
    let cluster = ClusterProfileReference { name: "a".to_owned(), namespace: "f".to_owned() };
    let mut state = FleetState::default();
    let mut observe = |since: Option<Timestamp>, is_unavailable, now| {
        let one = Leaving { since, is_unavailable, ..Leaving::default() };
        let mut leaving = BTreeMap::from([(cluster.clone(), one)]);
        state.observe_removals(&mut leaving, false, SignedDuration::from_secs(now));
        let one = &leaving[&cluster];
        (one.observed.as_secs(), one.available_for.map(|time| time.as_secs()))
    };
    let recorded = Some(Timestamp::UNIX_EPOCH);
    assert_eq!((observe(recorded, false, 10), observe(recorded, false, 15)), ((0, None), (5, None)));
    assert_eq!((observe(recorded, true, 20), observe(recorded, true, 30)), ((0, Some(0)), (0, Some(0))));
    assert_eq!((observe(recorded, false, 40), observe(recorded, false, 42)), ((0, Some(0)), (2, Some(2))));
    // Its time was removed: it leaves again.
    assert_eq!((observe(None, false, 50), observe(recorded, false, 60)), ((0, None), (0, None)));
}

#[test]
fn changes_of_its_clusters_concern_a_fleet() {
    let cluster = |name: &str| ClusterProfileReference { name: name.to_owned(), namespace: "f".to_owned() };
    let of = |name: &str| Changes { clusters: [cluster(name)].into(), ..Changes::default() };
    let mut state = FleetState::default();
    assert!(state.is_concerned("7", &of("c")), "before the first pass");
    let selected = Arc::new(Selected::from(vec![cluster("a")]));
    state.clusters = Some(Clusters { selected, others: [cluster("b")].into() });
    assert_eq!(["a", "b", "c"].map(|name| state.is_concerned("7", &of(name))), [true, true, false]);
    let relabeled = Changes { relabeled: [cluster("a")].into(), ..Changes::default() };
    let owned = Changes { owners: ["7".to_owned()].into(), ..of("c") };
    assert!(state.is_concerned("7", &relabeled) && state.is_concerned("7", &owned));
}

#[test]
fn no_time_passes_while_the_clusters_are_not_known() {
    let cluster = ClusterProfileReference { name: "a".to_owned(), namespace: "f".to_owned() };
    let (leaving, seconds) = (BTreeSet::from([cluster.clone()]), SignedDuration::from_secs);
    let mut state = FleetState::default();
    let observe = |state: &mut FleetState, now| {
        let grace = state.observe_leaving(&leaving, false, seconds(now))[&cluster];
        let update = state.timers.observe(&cluster, 1, Phase::NotReady, seconds(now));
        (grace.as_secs(), update.in_phase.as_secs())
    };
    assert_eq!((observe(&mut state, 100), observe(&mut state, 110)), ((0, 0), (10, 10)));
    // Each pass finds that they are not known; the time before the first one counts.
    [130, 150, 900].into_iter().for_each(|now| state.lose_clusters(seconds(now)));
    state.find_clusters(seconds(1000));
    assert_eq!((observe(&mut state, 1000), observe(&mut state, 1005)), ((0, 30), (5, 35)));
    state.find_clusters(seconds(1006));
    assert_eq!(observe(&mut state, 1006), (6, 36));
}

#[test]
fn resource_that_is_reported_during_a_pass_is_in_it() {
    let (fleet, key) = fleet();
    let (registry, mut state) = (Registry::default(), FleetState::default());
    state.written.insert(key.clone(), (resource("6", Some("7")), Instant::now()));
    state.forget_reported(&registry);
    let mut children = Children::default();
    children.collect(&fleet, &registry);
    registry.set(resource("6", Some("7")));
    state.merge_written(&mut children);
    assert!(children.own().contains_key(&key) && state.written_until().is_some());
    state.forget_reported(&registry);
    assert_eq!(state.written_until(), None);
    children.collect(&fleet, &registry);
    assert_eq!(children.own().len(), 1);
}

#[test]
fn resource_that_was_orphaned_after_its_write_is_not_the_fleets() {
    let (fleet, key) = fleet();
    // The watch has not reported the write, has, and has reported what the garbage collector
    // wrote after it.
    for (stored, expected) in
        [(resource("5", Some("7")), Some("6")), (resource("6", Some("7")), Some("6")), (resource("7", None), None)]
    {
        let mut state = FleetState::default();
        state.written.insert(key.clone(), (resource("6", Some("7")), Instant::now()));
        let registry = Registry::default();
        registry.set(stored);
        state.forget_reported(&registry);
        let mut children = Children::default();
        children.collect(&fleet, &registry);
        state.merge_written(&mut children);
        let own = children.own().get(&key).and_then(|own| own.meta().resource_version.as_deref());
        assert_eq!(own, expected);
    }
}
