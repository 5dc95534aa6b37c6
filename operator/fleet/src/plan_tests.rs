//! Tests of what a fleet would change.

use knative_operator_rules as rules;
use knative_operator_shared::label::{ADOPT, FLEET_REVISION};

use super::*;

fn cluster(name: &str) -> ClusterProfileReference {
    ClusterProfileReference { name: name.to_owned(), namespace: "n".to_owned() }
}

fn profile(tier: &str, healthy: &str) -> ClusterProfile {
    serde_json::from_value(json!({"metadata": {"name": "x", "labels": {"tier": tier}}, "spec": {},
        "status": {"conditions": [{"type": "ControlPlaneHealthy", "status": healthy}]}}))
    .unwrap()
}

fn stored(name: &str, target: &str, patch: &Value) -> Knative {
    let mut object = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
        "metadata": {"name": name, "namespace": "n", "ownerReferences": [{"apiVersion": "a", "kind": "KnativeFleet", "name": "f", "uid": "1"}]},
        "spec": {"version": "1.20.3", "config": {"a": {"b": "c"}}, "clusterProfileRef": {"name": target, "namespace": "n"}}, "status": {"version": "1.20.3"}});
    json_patch::merge(&mut object, patch);
    rules::parse(Component::Serving, &object).unwrap()
}

#[test]
fn each_change_is_planned() {
    let fleet: KnativeFleet = serde_json::from_value(json!({"metadata": {"name": "f", "namespace": "n"}, "spec": {
        "placement": {"clusterSelector": {}}, "serving": {"spec": {"version": "1.22", "config": {"a": {"b": "d"}}}},
        "overrides": [{"clusterSelector": {"matchLabels": {"tier": "old"}}, "serving": {"spec": {"version": "1.20", "config": {"a": {"b": "c"}}}}}],
        "rollout": {"stages": [{"name": "canary", "clusterSelector": {"matchLabels": {"tier": "canary"}}}]}}}))
    .unwrap();
    let tiers = [
        ("new", "rest", "True"),
        ("own", "canary", "True"),
        ("same", "old", "True"),
        ("single", "rest", "True"),
        ("adopted", "rest", "False"),
        ("left", "rest", "True"),
        ("lost", "rest", "Unknown"),
    ];
    let profiles: HashMap<_, _> =
        tiers.into_iter().map(|(name, tier, healthy)| (cluster(name), profile(tier, healthy))).collect();
    let resources = [
        stored("one", "own", &json!({})),
        stored("two", "same", &json!({})),
        stored("three", "single", &json!({"metadata": {"ownerReferences": null}})),
        stored("four", "adopted", &json!({"metadata": {"ownerReferences": null, "annotations": {ADOPT: "true"}}})),
        stored("five", "left", &json!({})),
        stored("six", "vanished", &json!({})),
        stored("seven", "lost", &json!({})),
    ];
    let clusters = ["adopted", "new", "own", "same", "single"].map(cluster);
    let stored =
        Stored { profiles: &profiles, resources: &resources, before: None, available: &[], keeps_installed: false };
    let changes = plan(&fleet, &clusters, &stored).unwrap();
    let short: Vec<_> = changes.iter().map(|c| (c.cluster.as_str(), c.stage.as_str(), c.change)).collect();
    assert_eq!(
        short,
        [
            ("n/own", "canary", Change::Update),
            ("n/adopted", "rest", Change::Adopt),
            ("n/new", "rest", Change::Create),
            ("n/same", "rest", Change::None),
            ("n/single", "rest", Change::Conflict),
            ("n/left", "", Change::Delete),
            ("n/lost", "", Change::Delete),
            ("n/vanished", "", Change::Keep),
        ]
    );
    assert_eq!(changes[0].fields, [r#"spec.config.a.b: "c" to "d""#, r#"spec.version: "1.20.3" to "1.22""#]);
    assert_eq!(changes[0].note, "in steps: 1.21, 1.22");
    assert_eq!(changes[1].note, "deferred: ControlPlaneHealthy is False; in steps: 1.21, 1.22");
    assert_eq!(changes[2].version.as_deref(), Some("1.22"), "the operator resolves it");
    assert!(changes[2].name.starts_with("f-new-"));
    assert_eq!(changes[4].note, "KnativeServing n/three uses the cluster");
    assert!(changes[5].note.starts_with("3600 s after the cluster left"), "{}", changes[5].note);
    let stays = "stays while the cluster is not available (ControlPlaneHealthy is Unknown), and 3600 s after that";
    assert!(changes[6].note.starts_with(stays), "{}", changes[6].note);
    assert_eq!(changes[7].note, "the ClusterProfile does not exist");
}

#[test]
fn versions_that_are_rolled_out_are_no_change() {
    let profiles = HashMap::from([(cluster("a"), profile("rest", "True"))]);
    let resources = [stored("one", "a", &json!({}))];
    let change = |asked: Option<&str>, before: Option<&RevisionData>| {
        let fleet: KnativeFleet = serde_json::from_value(json!({"metadata": {"name": "f", "namespace": "n"}, "spec": {
            "placement": {"clusterSelector": {}}, "serving": {"spec": {"version": asked, "config": {"a": {"b": "c"}}}}}}))
        .unwrap();
        let stored =
            Stored { profiles: &profiles, resources: &resources, before, available: &[], keeps_installed: false };
        plan(&fleet, &[cluster("a")], &stored).unwrap().remove(0).fields
    };
    for asked in [Some("1.20"), Some("latest"), Some("1.20.3"), None] {
        assert!(change(asked, None).is_empty(), "{asked:?}");
    }
    // A rollout of a newer one is in progress.
    let before: RevisionData = serde_json::from_value(json!({"serving": {"spec": {"version": "1.20"}},
        "versions": {"KnativeServing": {"1.20": "1.20.5"}}}))
    .unwrap();
    assert_eq!(change(Some("1.20"), Some(&before)), [r#"spec.version: "1.20.3" to "1.20.5""#]);
    assert_eq!(change(Some("1.21"), Some(&before)), [r#"spec.version: "1.20.3" to "1.21""#]);
}

#[test]
fn versions_are_those_of_the_release_bundle() {
    let profiles = HashMap::from(["a", "new"].map(|name| (cluster(name), profile("rest", "True"))));
    let resources = [stored("one", "a", &json!({}))];
    let version = |text: &&str| text.parse::<Version>().unwrap();
    let planned = |asked: &str, bundle: &[&str], keeps_installed: bool| {
        let fleet: KnativeFleet = serde_json::from_value(json!({"metadata": {"name": "f", "namespace": "n"}, "spec": {
            "placement": {"clusterSelector": {}}, "serving": {"spec": {"version": asked, "config": {"a": {"b": "c"}}}}}}))
        .unwrap();
        let available = [(Component::Serving, bundle.iter().map(version).collect())];
        let (profiles, resources) = (&profiles, &resources);
        let stored = Stored { profiles, resources, before: None, available: &available, keeps_installed };
        let clusters = ["a", "new"].map(cluster);
        let changes = plan(&fleet, &clusters, &stored).unwrap();
        let meanings = meanings(&fleet, &clusters, &stored);
        let [Meaning { before, after, .. }] = meanings.as_slice() else { panic!("{asked}") };
        let of = |change: &PlannedChange| (change.version.clone().unwrap_or_default(), change.note.clone());
        ((before.clone(), after.clone()), of(&changes[0]), of(&changes[1]))
    };
    let text = |text: &str| Some(text.to_owned());
    let at = |version: &str, note: &str| (version.to_owned(), note.to_owned());
    let bundle = ["1.20.3", "1.20.5", "1.21.2", "1.22.0", "1.22.1"];
    let way = at("1.22.1", "in steps: 1.21.2, 1.22.1");
    assert_eq!(planned("1.22", &bundle, false), ((None, text("1.22.1")), way.clone(), at("1.22.1", "")));
    assert_eq!(planned("latest", &bundle, false), ((text("1.20.3"), text("1.22.1")), way, at("1.22.1", "")));
    let newer = at("1.20.5", "");
    assert_eq!(planned("1.20", &bundle, false), ((text("1.20.3"), text("1.20.5")), newer.clone(), newer));
    let kept = at("1.20.3", "");
    assert_eq!(planned("1.20", &bundle, true), ((text("1.20.3"), text("1.20.3")), kept.clone(), kept));
    let lacking = at("1.22.1", "the release bundle of the operator lacks version 1.21");
    let gap = planned("1.22", &["1.20.3", "1.22.1"], false);
    assert_eq!(gap, ((None, text("1.22.1")), lacking, at("1.22.1", "")));
}

#[test]
fn version_that_the_fleet_has_is_known_as_to_the_operator() {
    let profiles = HashMap::from(["a", "b"].map(|name| (cluster(name), profile("rest", "True"))));
    let fleet = json!({"metadata": {"name": "f", "namespace": "n"}, "spec": {"placement": {"clusterSelector": {}},
        "serving": {"spec": {"version": "1.20", "config": {"a": {"b": "c"}}}}}});
    let fleet: KnativeFleet = serde_json::from_value(fleet).unwrap();
    let available = [(Component::Serving, Vec::from(["1.20.3".parse().unwrap()]))];
    let means = |resource: Knative, clusters: &[ClusterProfileReference]| {
        let (profiles, resources) = (&profiles, &[resource]);
        let stored = Stored { profiles, resources, before: None, available: &available, keeps_installed: false };
        let changes = plan(&fleet, clusters, &stored).unwrap();
        let after = meanings(&fleet, clusters, &stored).remove(0).after.unwrap();
        assert!(changes.iter().all(|change| change.version.as_ref().is_none_or(|version| *version == after)));
        after
    };
    let both = ["a", "b"].map(cluster);
    // It was restored from a backup, and lost its status.
    let asks = |annotations: Value| json!({"metadata": {"annotations": annotations}, "spec": {"version": "1.20.5"}, "status": null});
    assert_eq!(means(stored("one", "a", &asks(json!({FLEET_REVISION: "r"}))), &both), "1.20.5");
    assert_eq!(means(stored("one", "a", &asks(json!({}))), &both), "1.20.3", "no fleet wrote it");
    // The fleet adopts it with its cluster.
    let adopted =
        json!({"metadata": {"ownerReferences": null, "annotations": {ADOPT: "true"}}, "status": {"version": "1.20.5"}});
    assert_eq!(means(stored("one", "a", &adopted), &both), "1.20.5");
    assert_eq!(means(stored("one", "a", &adopted), &both[1..]), "1.20.3");
}
