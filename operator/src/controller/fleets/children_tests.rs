//! What is kept of the resources of a fleet is what a new collection finds.

use knative_operator_rules as rules;
use knative_operator_shared::condition::INSTALL_SUCCEEDED;
use knative_operator_shared::label::ADOPT;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::controller::conditions::OCCUPIED;

fn cluster(name: &str) -> ClusterProfileReference {
    ClusterProfileReference { name: name.to_owned(), namespace: "f".to_owned() }
}

fn fleet() -> KnativeFleet {
    let meta = json!({"name": "p", "namespace": "n", "uid": "1"});
    serde_json::from_value(json!({"metadata": meta, "spec": {"placement": {}}})).unwrap()
}

fn serving(name: &str, cluster: &str, meta: &Value) -> Value {
    let mut resource = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
        "metadata": {"name": name, "namespace": "n"}, "spec": {"clusterProfileRef": {"name": cluster, "namespace": "f"}}});
    json_patch::merge(&mut resource["metadata"], meta);
    resource
}

fn owned_by(uid: &str) -> Value {
    json!([{"apiVersion": "v1", "kind": "KnativeFleet", "name": "p", "uid": uid}])
}

fn parse(resource: &Value) -> Arc<Knative> {
    Arc::new(rules::parse(Component::Serving, resource).unwrap())
}

/// Collects the resources of the fleet with these selected `clusters` in `children`.
fn collect(children: &mut Children, clusters: &[&str], registry: &Registry) {
    let selected = Selected::from(clusters.iter().map(|name| cluster(name)).collect::<Vec<_>>());
    children.collect(&fleet(), registry);
    let left = children.left(&selected);
    children.add_others(&fleet(), (&selected, &left), registry);
}

#[test]
fn fleet_adopts_what_is_free_on_clusters_that_it_selects() {
    let registry = Registry::default();
    let add = |name: &str, cluster: &str, meta: Value| {
        let mut annotated = json!({"annotations": {ADOPT: "true"}});
        json_patch::merge(&mut annotated, &meta);
        registry.set(parse(&serving(name, cluster, &annotated)));
    };
    add("own", "a", json!({"ownerReferences": owned_by("1")}));
    add("second", "a", json!({}));
    add("free", "b", json!({}));
    add("unmarked", "c", json!({"annotations": null}));
    add("ending", "d", json!({"deletionTimestamp": "2026-01-01T00:00:00Z"}));
    add("elsewhere", "e", json!({}));
    let mut children = Children::default();
    collect(&mut children, &["a", "b", "c", "d"], &registry);
    let own: Vec<_> = children.own().values().map(|resource| resource.name()).collect();
    assert_eq!(own, ["own", "free"]);
    let others: BTreeSet<_> = children.others.values().map(|resource| resource.name()).collect();
    assert_eq!(others, BTreeSet::from(["ending", "second", "unmarked"]));
}

/// The resources of the fleet, and others.
fn resources(children: &Children) -> [BTreeMap<ChildKey, *const Knative>; 2] {
    let of = |(key, resource): (&ChildKey, &Arc<Knative>)| (key.clone(), Arc::as_ptr(resource));
    [children.own.iter().map(of).collect(), children.others.iter().map(of).collect()]
}

/// What happens to the resource with a name.
#[derive(Clone, Debug)]
enum Event {
    /// The watch reports it: on this cluster, and with this metadata and status.
    Reported(String, &'static str, Value, Value),
    Deleted(String),
    /// It was written, and is not reported yet.
    Written(String, &'static str),
    Pass,
}

fn event() -> impl Strategy<Value = Event> {
    let name = prop::sample::select(vec!["a", "b", "c", "d"]).prop_map(str::to_owned);
    let on = prop::sample::select(vec!["x", "y", "z"]);
    let meta = prop::sample::select(vec![
        json!({"ownerReferences": owned_by("1"), "annotations": {FLEET_REVISION: "one"}}),
        json!({"ownerReferences": owned_by("1"), "annotations": {FLEET_REVISION: "two", FLEET_PREVIOUS: "one"}}),
        json!({"ownerReferences": owned_by("1"), "annotations": {FLEET_LEFT_AT: "2026-01-01T00:00:00Z"}}),
        json!({"ownerReferences": owned_by("1"), "finalizers": [Component::Serving.finalizer()]}),
        json!({"ownerReferences": owned_by("1"), "deletionTimestamp": "2026-01-01T00:00:00Z"}),
        json!({"ownerReferences": owned_by("2")}),
        json!({"annotations": {ADOPT: "true"}}),
        json!({"ownerReferences": owned_by("1"), "namespace": "other"}),
    ]);
    let occupied = json!({"conditions": [{"type": INSTALL_SUCCEEDED, "status": "False", "reason": OCCUPIED}]});
    let status = prop::sample::select(vec![Value::Null, json!({"version": "1.22.0"}), occupied]);
    prop_oneof![
        4 => (name.clone(), on.clone(), meta, status).prop_map(|(name, on, meta, status)| Event::Reported(name, on, meta, status)),
        1 => name.clone().prop_map(Event::Deleted),
        1 => (name, on).prop_map(|(name, on)| Event::Written(name, on)),
        3 => Just(Event::Pass),
    ]
}

proptest! {
    #[test]
    fn what_is_kept_is_what_a_new_collection_finds(events in prop::collection::vec(event(), 1..40)) {
        let (registry, mut kept) = (Registry::default(), Children::default());
        for event in events.into_iter().chain([Event::Pass]) {
            match event {
                Event::Reported(name, on, meta, status) => {
                    let mut resource = serving(&name, on, &meta);
                    if !status.is_null() {
                        resource["status"] = status;
                    }
                    registry.set(parse(&resource));
                }
                Event::Deleted(name) => {
                    registry.remove(&ResourceKey::of(&parse(&serving(&name, "x", &json!({})))));
                }
                Event::Written(name, on) => {
                    let meta = json!({"ownerReferences": owned_by("1"), "annotations": {FLEET_REVISION: "new", FLEET_LEFT_AT: "now"}});
                    kept.replace((cluster(on), Component::Serving), parse(&serving(&name, on, &meta)));
                }
                Event::Pass => {
                    let mut new = Children::default();
                    collect(&mut new, &["x", "y"], &registry);
                    collect(&mut kept, &["x", "y"], &registry);
                    prop_assert_eq!(resources(&kept), resources(&new));
                    prop_assert_eq!(&kept.summary, &new.summary);
                    let counted = new.own.iter().fold(Summary::default(), |mut all, (key, one)| {
                        all.change(key, one, true);
                        all
                    });
                    prop_assert_eq!(&kept.summary, &counted);
                }
            }
        }
    }
}
