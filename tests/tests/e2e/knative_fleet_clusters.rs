//! The clusters of a `KnativeFleet`: adoption, conflicts, joining, unreachable spokes, decisions,
//! and definitions that come and go.

use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use knative_operator_shared::api::fleet::KnativeFleetStatus;
use knative_operator_shared::api::{KnativeFleet, KnativeServing};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET};
use knative_operator_tests::{Result, releases, tools, wait};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::knative_fleet::{PLACE, approve, children, fleet, has, status, two_spokes};
use crate::support::{INSTALL, apply, confirm, gone, run, step};

/// Waits until `holds` is true for the status of the fleet called `name`.
async fn status_of(
    hub: &Cluster,
    name: &str,
    what: &str,
    holds: impl Fn(&KnativeFleetStatus) -> bool,
) -> Result<KnativeFleetStatus> {
    let api = Api::<KnativeFleet>::namespaced(hub.client(), PLACE);
    let found = wait::until(&api, name, INSTALL, what, |fleet| {
        fleet.and_then(|fleet| fleet.status.as_ref()).is_some_and(&holds)
    });
    found.await?.and_then(|fleet| fleet.status).ok_or_else(|| "no status".into())
}

pub fn attention(status: &KnativeFleetStatus, cluster: &str, reason: &str, part: &str) -> bool {
    status
        .attention
        .iter()
        .any(|other| other.cluster.name == cluster && other.reason == reason && other.message.contains(part))
}

/// Generations of the Deployments on a spoke: a changed template restarts Pods.
async fn generations(spoke: &Cluster) -> Result<Vec<(String, i64)>> {
    let api = Api::<Deployment>::namespaced(spoke.client(), "knative-serving");
    let all = api.list(&ListParams::default()).await?;
    let mut all: Vec<_> = all
        .into_iter()
        .map(|d| (d.metadata.name.unwrap_or_default(), d.metadata.generation.unwrap_or_default()))
        .collect();
    all.sort();
    Ok(all)
}

/// The resources in `backup`, as a tool restores them.
fn restored(backup: &str) -> Result<String> {
    let mut list: Value = serde_json::from_str(backup)?;
    for item in list["items"].as_array_mut().into_iter().flatten() {
        for field in ["resourceVersion", "uid", "managedFields", "finalizers"] {
            item["metadata"].as_object_mut().map(|metadata| metadata.remove(field));
        }
    }
    Ok(list.to_string())
}

/// The fleet `object` finds the resource `single` for the cluster `a`, which is not its own.
async fn resource_is_adopted(hub: &Cluster, a: &Cluster, object: &Value) -> Result<()> {
    let api = Api::<KnativeServing>::namespaced(hub.client(), PLACE);
    let is_ready = |serving: Option<&KnativeServing>| {
        let conditions = serving.and_then(|s| s.status.as_ref()).map(|s| s.conditions.as_slice());
        conditions.unwrap_or_default().iter().any(|c| c.type_ == "Ready" && c.status == "True")
    };
    wait::until(&api, "single", INSTALL, "Ready", is_ready).await?;
    let (uid, before) = (api.get("single").await?.metadata.uid, generations(a).await?);
    // Another resource for the cluster is a conflict, and is left alone.
    apply(hub, object).await?;
    let conflict = "KnativeServing platform/single uses the cluster: annotate it with ";
    status(hub, "in conflict", |s| attention(s, "a", "Conflict", conflict) && s.updated == 1).await?;
    assert!(api.get("single").await?.metadata.owner_references.is_none());

    // It is adopted, without a restart of a Pod.
    hub.object("knativeserving", PLACE, "single").annotate(&json!({"operator.knative.dev/adopt": "true"})).await?;
    status(hub, "Ready", |s| has(s, "Ready", "Ready") && s.updated == 2).await?;
    let adopted = api.get("single").await?;
    assert_eq!(adopted.metadata.uid, uid);
    let owner = adopted.metadata.owner_references.as_ref().and_then(|all| all.first());
    assert!(owner.is_some_and(|owner| owner.kind == "KnativeFleet" && owner.name == "prod"));
    assert_eq!(generations(a).await?, before);
    Ok(())
}

async fn younger_fleet_leaves_the_clusters(hub: &Cluster, object: &Value) -> Result<()> {
    let mut younger = object.clone();
    younger["metadata"]["name"] = json!("young");
    apply(hub, &younger).await?;
    let refused = |s: &KnativeFleetStatus| s.failed == 2 && has(s, "Ready", "ClustersFailed");
    let message = status_of(hub, "young", "in conflict", refused).await?.attention[0].message.clone();
    assert!(message.contains("KnativeServing platform/") && message.contains("of KnativeFleet prod"), "{message}");
    confirm(hub, PLACE, "young").await?;
    hub.object("knativefleet", PLACE, "young").delete().await?;
    assert_eq!(children(hub).await?.len(), 2);
    Ok(())
}

/// The spoke `b` is down while the fleet becomes `object`.
async fn spoke_that_is_down_catches_up(hub: &Cluster, b: &mut Cluster, object: &Value) -> Result<()> {
    b.stop_apiserver();
    apply(hub, object).await?;
    let deferred = |s: &KnativeFleetStatus| attention(s, "b", "Deferred", "is unreachable") && s.updated == 1;
    status(hub, "deferred", deferred).await?;
    b.start_apiserver().await?;
    status(hub, "Ready", |s| has(s, "Ready", "Ready") && s.updated == 2).await.map(drop)
}

/// A cluster that joins while the fleet becomes `object` gets what its stage has, and then the
/// rest. Returns it.
async fn cluster_joins(hub: &Cluster, object: &Value) -> Result<Cluster> {
    let api = Api::<KnativeServing>::namespaced(hub.client(), PLACE);
    hub.object("clusterprofile", FLEET, "a").label(&json!({"tier": "canary"})).await?;
    apply(hub, object).await?;
    let waiting = status(hub, "awaiting approval", |s| has(s, "Progressing", "AwaitingApproval")).await?;
    let c = Cluster::spoke("kfleet-join-c").await?;
    product::register(hub, &c, "c").await?;
    hub.object("clusterprofile", FLEET, "c").label(&json!({"env": "prod"})).await?;
    status(hub, "joined", |s| s.clusters == 3 && s.ready == 3 && s.updated == 1).await?;
    let template = async |cluster: &str| -> Result<Value> {
        let all = api.list(&ListParams::default()).await?;
        let is = |s: &&KnativeServing| s.spec.common.cluster_profile_ref.as_ref().is_some_and(|r| r.name == cluster);
        Ok(json!(all.iter().find(is).map(|s| &s.spec.common.config["network"]["domain-template"])))
    };
    assert_eq!((template("a").await?, template("c").await?), (json!("y"), json!("x")));
    approve(hub, waiting.update_revision.as_deref().unwrap_or_default(), "prod").await?;
    status(hub, "Ready", |s| has(s, "Ready", "Ready") && s.updated == 3).await?;
    assert_eq!(template("c").await?, json!("y"));
    Ok(c)
}

/// A cluster that leaves loses its installation, not the others theirs.
async fn cluster_leaves(hub: &Cluster) -> Result<()> {
    let api = Api::<KnativeServing>::namespaced(hub.client(), PLACE);
    hub.object("clusterprofile", FLEET, "c").label(&json!({"env": null})).await?;
    status(hub, "left", |s| s.clusters == 2).await?;
    let left = |serving: Option<&KnativeServing>| serving.is_none();
    let all = api.list(&ListParams::default()).await?;
    let of_c = all.iter().find(|s| s.spec.common.cluster_profile_ref.as_ref().is_some_and(|r| r.name == "c"));
    if let Some(name) = of_c.and_then(|s| s.metadata.name.clone()) {
        wait::until(&api, &name, INSTALL, "deleted", left).await?;
    }
    assert_eq!(children(hub).await?.len(), 2);
    Ok(())
}

/// The definition of ClusterProfiles goes, and no cluster with it.
async fn definition_comes_back(hub: &Cluster, a: &Cluster, b: &Cluster) -> Result<()> {
    let crd = std::fs::read_to_string(tools::control_plane("clusterprofiles.yaml")?)?;
    hub.kubectl(&["delete", "-f", "-"], &crd).await?;
    status(hub, "unknown", |s| has(s, "Ready", "ClustersUnknown")).await?;
    assert_eq!(children(hub).await?.len(), 2);
    hub.kubectl(&["apply", "-f", "-"], &crd).await?;
    wait::established(hub.client()).await?;
    for (name, spoke) in [("a", a), ("b", b)] {
        product::profile(hub, name, &product::access(spoke, name)).await?;
        hub.object("clusterprofile", FLEET, name).label(&json!({"env": "prod"})).await?;
    }
    status(hub, "Ready", |s| has(s, "Ready", "Ready") && s.clusters == 2).await.map(drop)
}

/// A fleet that is renamed adopts its resources back, without a restart of a Pod.
async fn renamed_fleet_adopts(hub: &Cluster, a: &Cluster, object: &mut Value) -> Result<()> {
    let api = Api::<KnativeServing>::namespaced(hub.client(), PLACE);
    let before = (generations(a).await?, api.get("single").await?.metadata.uid);
    object["spec"]["removal"] = json!({"policy": "Orphan"});
    apply(hub, object).await?;
    let foreground = ["delete", "kfleet", "prod", "-n", PLACE, "--cascade=foreground"];
    let (is_deleted, output) = hub.kubectl_output(&foreground, "").await;
    assert!(!is_deleted && output.contains("spec.removal.policy: leaves the installation"), "{output}");
    let backup = hub.kubectl(&["get", "knativeserving", "-n", PLACE, "-o", "json"], "").await?;
    hub.object("knativefleet", PLACE, "prod").delete().await?;
    assert_eq!(children(hub).await?.len(), 2);
    // A backup has references to the fleet that is gone: the garbage collector would uninstall.
    let (is_restored, output) = hub.kubectl_output(&["replace", "-f", "-"], &restored(&backup)?).await;
    assert!(!is_restored && output.contains("which does not exist: the garbage collector would delete"), "{output}");
    object["metadata"]["name"] = json!("renamed");
    apply(hub, object).await?;
    status_of(hub, "renamed", "Ready", |s| has(s, "Ready", "Ready") && s.updated == 2).await?;
    let single = api.get("single").await?.metadata;
    assert_eq!((generations(a).await?, single.uid), before);
    let owners = single.owner_references.unwrap_or_default();
    assert!(owners.iter().any(|owner| owner.name == "renamed"), "{owners:?}");
    hub.object("knativefleet", PLACE, "renamed").delete().await?;
    Ok(())
}

#[test]
fn clusters_are_adopted_join_and_are_left_to_their_fleet() {
    run(async {
        let releases = releases::small();
        let (hub, [a, mut b], _product, _plugins) = two_spokes(&releases, "kfleet-join").await?;
        let serving = json!({"version": "1.0.0", "ingress": {"kourier": {"enabled": true}}});
        let mut single = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
            "metadata": {"name": "single", "namespace": PLACE}, "spec": serving});
        single["spec"]["clusterProfileRef"] = json!({"name": "a", "namespace": FLEET});
        apply(&hub, &single).await?;
        let mut object = fleet(&serving);
        object["spec"]["rollout"] = json!({"stages": [{"name": "all", "maxConcurrent": 3, "maxFailures": "100%"}]});
        step("a resource is adopted", resource_is_adopted(&hub, &a, &object)).await?;
        step("a younger fleet", younger_fleet_leaves_the_clusters(&hub, &object)).await?;
        object["spec"]["serving"]["spec"]["config"] = json!({"network": {"domain-template": "x"}});
        step("a spoke that is down", spoke_that_is_down_catches_up(&hub, &mut b, &object)).await?;
        object["spec"]["rollout"] = fleet(&serving)["spec"]["rollout"].clone();
        object["spec"]["serving"]["spec"]["config"] = json!({"network": {"domain-template": "y"}});
        let _c = step("a cluster joins", cluster_joins(&hub, &object)).await?;
        step("it leaves", cluster_leaves(&hub)).await?;
        step("the definition comes back", definition_comes_back(&hub, &a, &b)).await?;
        step("a renamed fleet", renamed_fleet_adopts(&hub, &a, &mut object)).await
    });
}

#[test]
fn decisions_place_clusters() {
    run(async {
        let crd = std::fs::read_to_string(tools::control_plane("placementdecisions.yaml")?)?;
        let releases = releases::small();
        let (hub, _spokes, _product, _plugins) = two_spokes(&releases, "kfleet-decision").await?;
        let mut object = fleet(&json!({"version": "1.0.0", "ingress": {"kourier": {"enabled": true}}}));
        object["spec"]["placement"] = json!({"decision": {"key": "knative", "namespace": FLEET}});
        object["spec"]["rollout"] = json!({"stages": [{"name": "all", "maxConcurrent": 3}]});
        apply(&hub, &object).await?;
        status(&hub, "without definition", |s| has(s, "Ready", "ClustersUnknown")).await?;

        // The definition comes later. A missing ClusterProfile is named, and blocks nothing.
        hub.kubectl(&["apply", "-f", "-"], &crd).await?;
        wait::established(hub.client()).await?;
        let slice = |name: &str, index: usize, clusters: &[&str]| {
            let decisions: Vec<Value> =
                clusters.iter().map(|name| json!({"clusterProfileRef": {"name": name, "namespace": FLEET}})).collect();
            json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "PlacementDecision", "metadata": {"name": name, "namespace": FLEET,
                "labels": {"multicluster.x-k8s.io/decision-key": "knative", "multicluster.x-k8s.io/decision-index": index.to_string()}},
                "decisions": decisions})
        };
        apply(&hub, &slice("one", 0, &["b"])).await?;
        apply(&hub, &slice("two", 1, &["a", "ghost"])).await?;
        let decided = |s: &KnativeFleetStatus| {
            s.clusters == 3 && s.updated == 2 && attention(s, "ghost", "Deferred", "ClusterProfile does not exist")
        };
        status(&hub, "placed", decided).await?;
        assert_eq!(children(&hub).await?.len(), 2);

        // An emptied decision, or a deleted definition, removes nothing.
        apply(&hub, &slice("one", 0, &[])).await?;
        apply(&hub, &slice("two", 1, &[])).await?;
        status(&hub, "blocked", |s| has(s, "RemovalBlocked", "TooManyClusters")).await?;
        apply(&hub, &slice("one", 0, &["a", "b"])).await?;
        status(&hub, "Ready", |s| has(s, "Ready", "Ready") && s.clusters == 2).await?;
        hub.kubectl(&["delete", "-f", "-"], &crd).await?;
        let still =
            |s: &KnativeFleetStatus| has(s, "Ready", "ClustersUnknown") || has(s, "RemovalBlocked", "TooManyClusters");
        status(&hub, "unknown or blocked", still).await?;
        // Longer than the delay of a removal.
        tokio::time::sleep(Duration::from_secs(7)).await;
        assert_eq!(children(&hub).await?.len(), 2);
        confirm(&hub, PLACE, "prod").await?;
        hub.stored(&object).start_deletion().await?;
        gone(&hub, &object).await?;
        Ok(())
    });
}
