//! What uninstalls nothing: a label or a property that flaps, a ClusterProfile that vanishes, a
//! mistyped selector that matches other clusters, `--cascade=orphan`, and the deletion without the
//! webhook of a fleet that is protected or not confirmed. What does: a cluster that left for longer
//! than its grace period.

use std::collections::BTreeMap;
use std::time::Duration;

use knative_operator_shared::api::fleet::KnativeFleetStatus;
use knative_operator_shared::api::{Component, KnativeServing};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET};
use knative_operator_tests::{Result, releases};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::knative_fleet::{PLACE, fleet, has, status, two_spokes};
use crate::knative_fleet_clusters::attention;
use crate::owners::state;
use crate::support::{INSTALL, apply, confirm, gone, has_condition, run, step};

/// Seconds of the grace period.
const GRACE: u64 = 10;

/// Uids of the resources, by cluster; none of them is being deleted.
async fn uids(hub: &Cluster) -> Result<BTreeMap<String, String>> {
    let all = Api::<KnativeServing>::namespaced(hub.client(), PLACE).list(&ListParams::default()).await?;
    let mut uids = BTreeMap::new();
    for serving in all {
        assert!(serving.metadata.deletion_timestamp.is_none(), "{serving:?}");
        let cluster = serving.spec.common.cluster_profile_ref.map(|cluster| cluster.name).unwrap_or_default();
        uids.insert(cluster, serving.metadata.uid.unwrap_or_default());
    }
    Ok(uids)
}

async fn label(hub: &Cluster, env: Option<&str>) -> Result<()> {
    hub.object("clusterprofile", FLEET, "a").label(&json!({"env": env})).await
}

/// Sets the properties of ClusterProfile `cluster`: its region, and one that no fleet selects by.
async fn describe(hub: &Cluster, cluster: &str, region: Option<&str>, memory: &str) -> Result<()> {
    let property = |name: &str, value: &str| json!({"name": name, "value": value});
    let region = region.map(|region| property("region.example.com/name", region));
    let properties: Vec<Value> = region.into_iter().chain([property("memory", memory)]).collect();
    hub.object("clusterprofile", FLEET, cluster).merge_status(&json!({"properties": properties})).await
}

/// A property is no label: its value has spaces. One that flaps uninstalls nothing from the
/// clusters of the fleet `object`, whose resources have the uids `before`.
async fn properties_uninstall_nothing(hub: &Cluster, object: &Value, before: &BTreeMap<String, String>) -> Result<()> {
    let region = "eu, west 1";
    for cluster in ["a", "b"] {
        describe(hub, cluster, Some(region), "1Gi").await?;
    }
    let mut by_region = object.clone();
    by_region["spec"]["placement"]["propertySelector"] = json!({"matchLabels": {"region.example.com/name": region}});
    apply(hub, &by_region).await?;
    describe(hub, "a", None, "1Gi").await?;
    status(hub, "pending", |s| has(s, "RemovalPending", "GracePeriod") && s.clusters == 1).await?;
    describe(hub, "a", Some(region), "2Gi").await?;
    status(hub, "back", |s| has(s, "RemovalPending", "NotPending") && s.updated == 2).await?;
    // Another region is another cluster, and a stage may have it.
    by_region["spec"]["placement"] = object["spec"]["placement"].clone();
    let here = json!({"matchExpressions": [{"key": "region.example.com/name", "operator": "In", "values": [region]}]});
    by_region["spec"]["rollout"]["stages"] = json!([{"name": "here", "propertySelector": here, "maxConcurrent": 2}]);
    apply(hub, &by_region).await?;
    describe(hub, "b", Some("us"), "1Gi").await?;
    let has_moved = |s: &KnativeFleetStatus| s.stages.iter().map(|stage| stage.clusters).eq([1, 1]);
    status(hub, "in another stage", has_moved).await?;
    // Without properties, the stage of a cluster is not known: the fleet writes nothing.
    let properties = |value: Value| json!({"properties": value});
    hub.object("clusterprofile", FLEET, "b").merge_status(&properties(json!([]))).await?;
    let unknown = status(hub, "unknown", |s| has(s, "Ready", "ClustersUnknown")).await?;
    let message = unknown.conditions.iter().find(|c| c.type_ == "Ready").and_then(|c| c.message.clone());
    assert!(
        message.is_some_and(|message| message.contains("ClusterProfile fleet-system/b has no status.properties")),
        "{unknown:?}"
    );
    describe(hub, "b", Some("us"), "1Gi").await?;
    status(hub, "known again", has_moved).await?;
    assert_eq!(uids(hub).await?, *before);
    apply(hub, object).await?;
    status(hub, "one stage", |s| s.stages.len() == 1 && has(s, "Ready", "Ready") && s.updated == 2).await?;
    Ok(())
}

/// A label is gone for a moment. `before` are the uids of the resources.
async fn label_that_flaps_uninstalls_nothing(hub: &Cluster, before: &BTreeMap<String, String>) -> Result<()> {
    label(hub, None).await?;
    let pending = status(hub, "pending", |s| has(s, "RemovalPending", "GracePeriod") && s.clusters == 1).await?;
    let message = pending.conditions.iter().find(|c| c.type_ == "RemovalPending").and_then(|c| c.message.clone());
    assert!(message.is_some_and(|message| message.contains("fleet-system/a")), "{pending:?}");
    tokio::time::sleep(Duration::from_secs(4)).await;
    label(hub, Some("prod")).await?;
    status(hub, "back", |s| has(s, "RemovalPending", "NotPending") && s.updated == 2).await?;
    assert_eq!(uids(hub).await?, *before);
    Ok(())
}

/// A ClusterProfile, that of `a`, vanishes for longer than the grace period.
async fn vanished_profile_uninstalls_nothing(
    hub: &Cluster,
    a: &Cluster,
    before: &BTreeMap<String, String>,
) -> Result<()> {
    hub.object("clusterprofile", FLEET, "a").delete().await?;
    status(hub, "vanished", |s| attention(s, "a", "ProfileMissing", "does not exist any more")).await?;
    tokio::time::sleep(Duration::from_secs(GRACE + 5)).await;
    assert_eq!(uids(hub).await?, *before);
    product::profile(hub, "a", &product::access(a, "a")).await?;
    label(hub, Some("prod")).await?;
    status(hub, "back", |s| has(s, "Ready", "Ready") && s.updated == 2).await?;
    assert_eq!(uids(hub).await?, *before);
    Ok(())
}

/// A mistyped selector matches thirty other clusters, which are not reachable.
async fn other_clusters_uninstall_nothing(
    hub: &Cluster,
    object: &Value,
    before: &BTreeMap<String, String>,
) -> Result<()> {
    for number in 0..30 {
        let profile = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
            "metadata": {"name": format!("other-{number}"), "namespace": FLEET, "labels": {"env": "prd"}},
            "spec": {"displayName": "other", "clusterManager": {"name": "tests"}}});
        apply(hub, &profile).await?;
    }
    let mut mistyped = object.clone();
    mistyped["spec"]["placement"]["clusterSelector"]["matchLabels"]["env"] = json!("prd");
    apply(hub, &mistyped).await?;
    status(hub, "blocked", |s| has(s, "RemovalBlocked", "TooManyClusters") && s.clusters == 30).await?;
    tokio::time::sleep(Duration::from_secs(GRACE + 5)).await;
    assert_eq!(uids(hub).await?, *before);
    apply(hub, object).await?;
    status(hub, "Ready", |s| has(s, "RemovalBlocked", "NotBlocked") && s.updated == 2).await.map(drop)
}

/// A paused fleet removes nothing; a resumed one does, after the grace period.
async fn paused_fleet_removes_nothing(
    hub: &Cluster,
    object: &mut Value,
    before: &BTreeMap<String, String>,
) -> Result<()> {
    object["spec"]["rollout"]["paused"] = json!(true);
    apply(hub, object).await?;
    label(hub, None).await?;
    status(hub, "paused", |s| has(s, "RemovalPending", "Paused") && s.clusters == 1).await?;
    tokio::time::sleep(Duration::from_secs(GRACE + 5)).await;
    assert_eq!(uids(hub).await?, *before);
    object["spec"]["rollout"]["paused"] = json!(false);
    apply(hub, object).await?;
    let removed = status(hub, "removed", |s| {
        s.removals.as_ref().is_some_and(|removals| removals.recent.iter().any(|recent| recent.clusters == 1))
    });
    removed.await?;
    status(hub, "left", |s| has(s, "RemovalPending", "NotPending") && s.clusters == 1).await?;

    let of_a = ["knativeserving", "-l", "operator.knative.dev/cluster=a", "-n", PLACE];
    hub.kubectl(&[&["wait", "--for=delete", "--timeout=2m"], &of_a[..]].concat(), "").await?;
    status(hub, "uninstalled", |s| s.installed == Some(1)).await.map(drop)
}

async fn webhook_refuses_what_nobody_confirmed(hub: &Cluster) -> Result<()> {
    // The webhook refuses a deletion that nobody confirmed, with the number of clusters.
    let plain = ["delete", "kfleet", "prod", "-n", PLACE, "--wait=false"];
    let (is_deleted, output) = hub.kubectl_output(&plain, "").await;
    let says = ["would uninstall from 1 cluster,", "knative-operator fleet delete prod", "confirm-removal=1"];
    assert!(!is_deleted && says.iter().all(|part| output.contains(part)), "{output}");

    // It refuses the deletion of the definition, which would delete the fleet.
    let definition = ["delete", "crd", "knativefleets.operator.knative.dev", "--wait=false"];
    let (is_deleted, output) = hub.kubectl_output(&definition, "").await;
    let says = ["has 1 resource, which would be deleted with it", "knative-operator fleet delete NAME"];
    assert!(!is_deleted && says.iter().all(|part| output.contains(part)), "{output}");
    Ok(())
}

/// The resources of a fleet stay if it is deleted with `--cascade=orphan`. Returns the name of that
/// of `b`, whose uid is in `before`.
async fn orphaned_resources_stay(hub: &Cluster, before: &BTreeMap<String, String>) -> Result<String> {
    hub.kubectl(&["delete", "kfleet", "prod", "-n", PLACE, "--cascade=orphan", "--timeout=2m"], "").await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let api = Api::<KnativeServing>::namespaced(hub.client(), PLACE);
    let of_b = api
        .list(&ListParams::default())
        .await?
        .into_iter()
        .find(|serving| serving.metadata.uid.as_ref() == before.get("b"));
    let meta = of_b.ok_or("the resource of b was deleted")?.metadata;
    assert!(meta.deletion_timestamp.is_none() && meta.owner_references.is_none(), "{meta:?}");
    Ok(meta.name.unwrap_or_default())
}

/// Somebody deletes the webhook's configuration, and a protected fleet in the foreground: the
/// garbage collector deletes its resource, called `name`, for `b`.
async fn protected_fleet_uninstalls_nothing(hub: &Cluster, b: &Cluster, object: &mut Value, name: &str) -> Result<()> {
    let api = Api::<KnativeServing>::namespaced(hub.client(), PLACE);
    let adopt = ["annotate", "knativeserving", name, "-n", PLACE, "operator.knative.dev/adopt=true", "--overwrite"];
    hub.kubectl(&adopt, "").await?;
    object["metadata"]["annotations"] = json!({"operator.knative.dev/protected": "true"});
    apply(hub, object).await?;
    status(hub, "adopted", |s| has(s, "Ready", "Ready") && s.updated == 1).await?;
    let owners = api.get(name).await?.metadata.owner_references.unwrap_or_default();
    assert!(owners.iter().any(|owner| owner.kind == "KnativeFleet"), "{owners:?}");
    let place = Component::Serving.canonical();
    let before = state(b, place).await?;
    hub.object("validatingwebhookconfiguration", "", "validation.operator.knative.dev").delete().await?;
    hub.kubectl(&["delete", "kfleet", "prod", "-n", PLACE, "--wait=false", "--cascade=foreground"], "").await?;
    status(hub, "protected", |s| has(s, "Ready", "Protected")).await?;
    let child = json!({"kind": "KnativeServing", "metadata": {"name": name, "namespace": PLACE}});
    has_condition(hub, &child, "InstallSucceeded", "DeletionNotConfirmed", "protects it").await?;
    hub.object("knativefleet", PLACE, "prod").annotate(&json!({"operator.knative.dev/protected": null})).await?;
    // Nobody has confirmed it either.
    let part = "would uninstall from 1 cluster,";
    let blocked = status(hub, "not confirmed", |s| has(s, "RemovalBlocked", "DeletionNotConfirmed")).await?;
    let message = blocked.conditions.iter().find(|c| c.type_ == "RemovalBlocked").and_then(|c| c.message.clone());
    let message = message.unwrap_or_default();
    assert!(message.contains(part) && message.contains("confirm-removal=1"), "{message}");
    has_condition(hub, &child, "InstallSucceeded", "DeletionNotConfirmed", part).await?;
    assert_eq!(state(b, place).await?, before);
    confirm(hub, PLACE, "prod").await?;
    gone(hub, object).await
}

#[test]
fn only_a_cluster_that_left_for_its_grace_period_is_uninstalled() {
    run(async {
        let releases = releases::small();
        let (hub, [a, b], _product, _plugins) = two_spokes(&releases, "kfleet-removal").await?;
        let mut object = fleet(&json!({"version": "1.0.0", "ingress": {"kourier": {"enabled": true}}}));
        object["spec"]["rollout"] = json!({"stages": [{"name": "all", "maxConcurrent": 2}]});
        // Long enough that a loaded machine has no part in it.
        object["spec"]["removal"] = json!({"gracePeriodSeconds": INSTALL.as_secs()});
        apply(&hub, &object).await?;
        status(&hub, "Ready", |s| has(s, "Ready", "Ready") && s.updated == 2).await?;
        let before = uids(&hub).await?;
        assert_eq!(before.len(), 2);

        step("a label that flaps", label_that_flaps_uninstalls_nothing(&hub, &before)).await?;
        step("a property that flaps", properties_uninstall_nothing(&hub, &object, &before)).await?;
        object["spec"]["removal"] = json!({"gracePeriodSeconds": GRACE});
        apply(&hub, &object).await?;
        step("a vanished profile", vanished_profile_uninstalls_nothing(&hub, &a, &before)).await?;
        step("a selector of other clusters", other_clusters_uninstall_nothing(&hub, &object, &before)).await?;
        step("a paused fleet", paused_fleet_removes_nothing(&hub, &mut object, &before)).await?;
        step("deletions that nobody confirmed", webhook_refuses_what_nobody_confirmed(&hub)).await?;
        let name = step("--cascade=orphan", orphaned_resources_stay(&hub, &before)).await?;
        step("a protected fleet", protected_fleet_uninstalls_nothing(&hub, &b, &mut object, &name)).await
    });
}
