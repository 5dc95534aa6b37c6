//! One installation, one owner: other resources and hubs wait, and take over on purpose only.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Pod};
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::measure::Audit;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, wait};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::knative_fleet::children;
use crate::support::{
    INSTALL, apply, confirm, delete, eventing, gone, has_condition, has_event, jobs_done, namespace, nothing_left,
    ready, run, serving, status,
};

/// Time at rest, in which a resource that waits for another one sends nothing.
const REST: Duration = Duration::from_secs(15);
pub const PLACE: &str = "knative-serving";
pub const ANCHOR: &str = "knativeserving-knative-serving-root-owner";

/// Uid and generation of each Deployment, and uid of each Pod, in `place`.
pub async fn state(cluster: &Cluster, place: &str) -> Result<BTreeMap<String, (String, i64)>> {
    let all = ListParams::default();
    let mut state = BTreeMap::new();
    for found in Api::<Deployment>::namespaced(cluster.client(), place).list(&all).await? {
        let generation = found.metadata.generation.unwrap_or_default();
        state.insert(format!("Deployment {}", found.name_any()), (found.uid().unwrap_or_default(), generation));
    }
    for found in Api::<Pod>::namespaced(cluster.client(), place).list(&all).await? {
        if found.owner_references().iter().all(|owner| owner.kind != "Job") {
            state.insert(format!("Pod {}", found.name_any()), (found.uid().unwrap_or_default(), 0));
        }
    }
    assert!(state.len() > 2, "not installed: {state:?}");
    Ok(state)
}

/// Uids of the Deployments and Pods in `place`: a generation counts changes of annotations, too.
pub async fn uids(cluster: &Cluster, place: &str) -> Result<BTreeMap<String, String>> {
    Ok(state(cluster, place).await?.into_iter().map(|(name, (uid, _))| (name, uid)).collect())
}

/// The uid of `kube-system`, which identifies a cluster.
pub async fn identity(cluster: &Cluster) -> Result<String> {
    Ok(Api::<Namespace>::all(cluster.client()).get("kube-system").await?.uid().unwrap_or_default())
}

/// The owner that the anchor `name` in `place` records.
pub async fn owner(cluster: &Cluster, place: &str, name: &str) -> Result<Value> {
    let anchor = Api::<ConfigMap>::namespaced(cluster.client(), place).get(name).await?;
    let record = anchor.annotations().get("operator.knative.dev/owner").ok_or("the anchor has no owner")?;
    Ok(serde_json::from_str(record)?)
}

/// Checks that once the `waiting` resource is Stalled, the spoke of `audit` gets only watches.
async fn at_rest(audit: &mut Audit, (hub, waiting): (&Cluster, &Value)) -> Result<()> {
    has_condition(hub, waiting, "Stalled", "Occupied", "").await?;
    let (started, second, mut rested) = (Instant::now(), Duration::from_secs(1), Duration::ZERO);
    while rested < REST {
        tokio::time::sleep(second).await;
        let requests: Vec<_> = audit.take()?.into_iter().filter(|request| request.verb != "watch").collect();
        assert!(requests.is_empty() || started.elapsed() < wait::LIMIT, "requests at rest: {requests:?}");
        rested = if requests.is_empty() { rested + second } else { Duration::ZERO };
    }
    Ok(())
}

/// Checks that all objects that were there `before` still are.
async fn nothing_lost(cluster: &Cluster, before: &BTreeSet<String>) -> Result<()> {
    let now = objects(&cluster.client()).await?;
    let lost: Vec<_> = before.difference(&now).collect();
    assert!(lost.is_empty(), "deleted: {lost:#?}");
    Ok(())
}

/// A hub called `name` with the product.
pub async fn hub(name: &str, releases: &Releases, plugins: &std::path::Path) -> Result<(Cluster, Product)> {
    let hub = Cluster::hub(name).await?;
    let mut values = product::values(&[]);
    values["knative_operator"]["hubName"] = json!(name);
    let product = Product::create(&hub, releases, values, plugins).await?;
    Ok((hub, product))
}

#[test]
fn two_profiles_of_one_cluster_have_one_installation() {
    run(async {
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let (started, spoke) = tokio::try_join!(hub("profiles", &releases, plugins.path()), Cluster::spoke("one"))?;
        let (hub, mut product) = started;
        product::register(&hub, &spoke, "one").await?;
        product::profile(&hub, "two", &product::access(&spoke, "one")).await?;
        let before = objects(&spoke.client()).await?;
        let first = serving("team-a", "knative-serving", Some("one"), &releases);
        let second = serving("team-b", "knative-serving", Some("two"), &releases);
        for place in ["team-a", "team-b"] {
            namespace(&hub, place).await?;
        }
        apply(&hub, &first).await?;
        ready(&hub, &first).await?;
        jobs_done(&spoke, PLACE, ANCHOR).await?;
        let installed = state(&spoke, PLACE).await?;
        let mut audit = Audit::of(&spoke, product::SPOKE_USER)?;

        let asked = Instant::now();
        apply(&hub, &second).await?;
        let owned = "KnativeServing team-a/knative-serving of hub \"profiles\" (uid ";
        has_condition(&hub, &second, "InstallSucceeded", "Occupied", owned).await?;
        eprintln!("Occupied after {:.2?}", asked.elapsed());
        at_rest(&mut audit, (&hub, &second)).await?;

        // Neither the deletion of the second nor a restart changes the first.
        delete(&hub, &second).await?;
        assert_eq!(state(&spoke, PLACE).await?, installed, "the deletion of the second changed the first");
        apply(&hub, &second).await?;
        has_condition(&hub, &second, "InstallSucceeded", "Occupied", owned).await?;
        product.restart_operator(&hub, rustix::process::Signal::KILL).await?;
        ready(&hub, &first).await?;
        has_condition(&hub, &second, "InstallSucceeded", "Occupied", owned).await?;
        assert_eq!(state(&spoke, PLACE).await?, installed);

        // Handover: the second installs once the first is gone.
        delete(&hub, &first).await?;
        ready(&hub, &second).await?;
        let recorded = owner(&spoke, PLACE, ANCHOR).await?;
        assert_eq!(recorded["namespace"], "team-b", "{recorded}");
        delete(&hub, &second).await?;
        nothing_left(&spoke, &before).await
    });
}

#[test]
fn hub_itself_is_one_of_its_clusters() {
    run(async {
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let (hub, _product) = hub("itself", &releases, plugins.path()).await?;
        product::register(&hub, &hub, "itself").await?;
        let local = eventing("knative-eventing", "knative-eventing", None, &releases);
        let remote = eventing("elsewhere", "other", Some("itself"), &releases);
        for place in ["knative-eventing", "elsewhere"] {
            namespace(&hub, place).await?;
        }
        apply(&hub, &local).await?;
        ready(&hub, &local).await?;
        apply(&hub, &remote).await?;
        let owned = "KnativeEventing knative-eventing/knative-eventing of hub \"itself\"";
        has_condition(&hub, &remote, "InstallSucceeded", "Occupied", owned).await?;
        let installed = state(&hub, "knative-eventing").await?;
        delete(&hub, &remote).await?;
        assert_eq!(state(&hub, "knative-eventing").await?, installed);
        ready(&hub, &local).await?;
        delete(&hub, &local).await
    });
}

#[test]
fn other_hub_takes_over_on_purpose_only() {
    run(async {
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let (old, new, spoke) = tokio::try_join!(
            hub("old", &releases, plugins.path()),
            hub("new", &releases, plugins.path()),
            Cluster::spoke("shared")
        )?;
        let ((old, _old_product), (new, _new_product)) = (old, new);
        let resource = serving(PLACE, "knative-serving", Some("shared"), &releases);
        for hub in [&old, &new] {
            product::register(hub, &spoke, "shared").await?;
            namespace(hub, PLACE).await?;
        }
        let before = objects(&spoke.client()).await?;
        apply(&old, &resource).await?;
        ready(&old, &resource).await?;
        let installed = state(&spoke, PLACE).await?;
        apply(&new, &resource).await?;
        let (old_uid, new_uid) = (identity(&old).await?, identity(&new).await?);
        let way = format!("operator.knative.dev/take-over={old_uid}");
        has_condition(&new, &resource, "InstallSucceeded", "Occupied", "of hub \"old\"").await?;
        has_condition(&new, &resource, "InstallSucceeded", "Occupied", &way).await?;
        delete(&new, &resource).await?;
        assert_eq!(state(&spoke, PLACE).await?, installed, "the deletion on the other hub changed the installation");

        // As the message says.
        let mut taking = resource.clone();
        taking["metadata"]["annotations"] = json!({"operator.knative.dev/take-over": old_uid});
        apply(&new, &taking).await?;
        ready(&new, &taking).await?;
        has_condition(&old, &resource, "InstallSucceeded", "Occupied", "of hub \"new\"").await?;
        let uids = |state: &BTreeMap<String, (String, i64)>| -> Vec<_> {
            state.iter().map(|(name, (uid, _))| (name.clone(), uid.clone())).collect()
        };
        assert_eq!(uids(&state(&spoke, PLACE).await?), uids(&installed), "Pods were restarted");
        let recorded = owner(&spoke, PLACE, ANCHOR).await?;
        assert_eq!(
            (&recorded["hub"], &recorded["replaced"]),
            (&json!(new_uid), &json!([{"hub": old_uid, "mark": recorded["replaced"][0]["mark"]}])),
            "{recorded}"
        );
        // All objects have the mark of the new owner.
        let marks = || async {
            let maps = Api::<Deployment>::namespaced(spoke.client(), PLACE).list(&ListParams::default()).await?;
            let mark = |d: Deployment| d.annotations().get("operator.knative.dev/owner-digest").cloned();
            Result::Ok(maps.into_iter().map(mark).collect::<BTreeSet<_>>())
        };
        assert_eq!(marks().await?.len(), 1);

        // The old hub deletes nothing, and the annotation of the new one is not used again.
        let mut audit = Audit::of(&spoke, product::SPOKE_USER)?;
        let taken = state(&spoke, PLACE).await?;
        at_rest(&mut audit, (&old, &resource)).await?;
        delete(&old, &resource).await?;
        assert_eq!(state(&spoke, PLACE).await?, taken, "the deletion on the old hub changed the installation");
        delete(&new, &taking).await?;
        nothing_left(&spoke, &before).await
    });
}

#[test]
fn forged_inventories_delete_nothing() {
    run(async {
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let (started, spoke) = tokio::try_join!(hub("forged", &releases, plugins.path()), Cluster::spoke("tenant"))?;
        let (hub, _product) = started;
        product::register(&hub, &spoke, "tenant").await?;
        for place in ["knative-eventing", "tenant"] {
            namespace(&hub, place).await?;
        }
        // Another installation, and objects of others.
        let other = eventing("knative-eventing", "knative-eventing", None, &releases);
        apply(&hub, &other).await?;
        ready(&hub, &other).await?;
        let role = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "somebodys"}, "rules": []});
        apply(&hub, &role).await?;
        let installed = state(&hub, "knative-eventing").await?;
        let mut rows = vec![
            json!({"g": "rbac.authorization.k8s.io", "k": "ClusterRole", "n": "somebodys", "v": "v1"}),
            json!({"g": "admissionregistration.k8s.io", "k": "ValidatingWebhookConfiguration", "n": "validation.operator.knative.dev", "v": "v1"}),
        ];
        let configurations = hub
            .kubectl(&["get", "validatingwebhookconfigurations", "-o", "jsonpath={.items[*].metadata.name}"], "")
            .await?;
        rows.extend(configurations.split_whitespace().map(|name| {
            json!({"g": "admissionregistration.k8s.io", "k": "ValidatingWebhookConfiguration", "n": name, "v": "v1"})
        }));
        let roles = hub.kubectl(&["get", "clusterroles", "-o", "jsonpath={.items[*].metadata.name}"], "").await?;
        rows.extend(roles.split_whitespace().filter(|name| name.contains("knative")).map(
            |name| json!({"g": "rbac.authorization.k8s.io", "k": "ClusterRole", "n": name, "v": "v1", "agg": true}),
        ));
        rows.extend(
            installed
                .keys()
                .filter_map(|name| name.strip_prefix("Deployment "))
                .map(|name| json!({"g": "apps", "k": "Deployment", "ns": "knative-eventing", "n": name, "v": "v1"})),
        );
        let forge = |name: &str, place: &str| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": place,
                "labels": {"app.kubernetes.io/managed-by": "knative-operator", "operator.knative.dev/cr-name": "x", "app.kubernetes.io/name": PLACE},
                "annotations": {"operator.knative.dev/anchor": "true"}},
                "data": {"inventory": json!(rows).to_string()}})
        };
        let everything = objects(&hub.client()).await?;

        // A resource with a finalizer: with an inventory that names no owner, and with one that
        // names the resource itself.
        let mut finalized = serving("tenant", "x", None, &releases);
        finalized["metadata"]["finalizers"] = json!(["knativeservings.operator.knative.dev"]);
        let mut forged = forge("knativeserving-x-inventory", "tenant");
        apply(&hub, &forged).await?;
        apply(&hub, &finalized).await?;
        has_condition(&hub, &finalized, "InstallSucceeded", "Occupied", "knativeserving-x-inventory").await?;
        hub.object("knativeserving", "tenant", "x").start_deletion().await?;
        gone(&hub, &finalized).await?;
        nothing_lost(&hub, &everything).await?;
        hub.kubectl(&["get", "configmap", "knativeserving-x-inventory", "-n", "tenant"], "").await?;
        let record = json!({"hub": identity(&hub).await?, "kind": "KnativeServing", "namespace": "tenant", "name": "x",
            "uid": "", "since": "", "confirmed": true});
        forged["metadata"]["annotations"]["operator.knative.dev/owner"] = json!(record.to_string());
        apply(&hub, &forged).await?;
        apply(&hub, &finalized).await?;
        status(&hub, &finalized, INSTALL, "observed", |s| s.observed_generation.is_some_and(|of| of > 0)).await?;
        hub.object("knativeserving", "tenant", "x").start_deletion().await?;
        gone(&hub, &finalized).await?;
        has_event(&hub, "tenant", "ObjectsLeft", "").await?;
        nothing_lost(&hub, &everything).await?;
        assert_eq!(state(&hub, "knative-eventing").await?, installed);

        // On a spoke: an anchor, and a namespace, that somebody created before.
        namespace(&spoke, PLACE).await?;
        spoke
            .kubectl(&["create", "rolebinding", "readers", "-n", PLACE, "--clusterrole=view", "--group=all"], "")
            .await?;
        apply(&spoke, &forge("knativeserving-x-root-owner", PLACE)).await?;
        // As other operators that use the library of the Go operator.
        spoke.kubectl(&["apply", "--field-manager=manifestival", "-f", "-"], &role.to_string()).await?;
        let before = objects(&spoke.client()).await?;
        let remote = serving("tenant", "x", Some("tenant"), &releases);
        apply(&hub, &remote).await?;
        has_condition(&hub, &remote, "InstallSucceeded", "Occupied", "knativeserving-x-root-owner").await?;
        delete(&hub, &remote).await?;
        nothing_lost(&spoke, &before).await?;

        // Pruning: the record says that it is the owner, as after an installation.
        let again = serving("tenant", "y", Some("tenant"), &releases);
        spoke.object("configmap", PLACE, "knativeserving-x-root-owner").delete().await?;
        apply(&hub, &again).await?;
        let used = ready(&hub, &again).await?.annotations.remove("operator.knative.dev/namespace-contents");
        assert_eq!(used.as_deref(), Some("RoleBinding readers"));
        has_event(&hub, "tenant", "NamespaceUsed", "existed before, with objects of others: RoleBinding readers")
            .await?;
        let anchor = "knativeserving-y-root-owner";
        let maps = Api::<ConfigMap>::namespaced(spoke.client(), PLACE);
        let stored = maps.get(anchor).await?.data.unwrap_or_default().remove("inventory").unwrap_or_default();
        let mut forged: Vec<Value> = serde_json::from_str(&stored)?;
        forged.push(json!({"g": "rbac.authorization.k8s.io", "k": "ClusterRole", "n": "somebodys", "v": "v1"}));
        let patch = json!({"data": {"inventory": json!(forged).to_string()}}).to_string();
        spoke.kubectl(&["patch", "configmap", anchor, "-n", PLACE, "--type=merge", "-p", &patch], "").await?;
        let forgotten = |map: Option<&ConfigMap>| {
            map.and_then(|map| map.data.as_ref()?.get("inventory")).is_some_and(|text| !text.contains("somebodys"))
        };
        wait::until(&maps, anchor, INSTALL, "without the foreign object", forgotten).await?;
        spoke.kubectl(&["get", "clusterrole", "somebodys"], "").await?;
        delete(&hub, &again).await?;
        spoke.kubectl(&["get", "namespace", PLACE], "").await?;
        delete(&hub, &other).await
    });
}

#[test]
fn unreadable_fleet_uninstalls_nothing() {
    run(async {
        // Without admission webhooks, which would refuse the value.
        let (hub, spoke) = tokio::try_join!(Cluster::spoke("newer-fleet"), Cluster::spoke("newer-fleet-1"))?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let mut values = product::values(&[]);
        values["knative_operator"]["fleet"] = json!({"enabled": true});
        let _product = Product::create(&hub, &releases, values, plugins.path()).await?;
        product::register(&hub, &spoke, "one").await?;
        hub.object("clusterprofile", product::FLEET, "one").label(&json!({"env": "prod"})).await?;
        namespace(&hub, "platform").await?;
        let mut fleet =
            crate::knative_fleet::fleet(&json!({"version": "1.0.0", "ingress": {"kourier": {"enabled": true}}}));
        fleet["spec"]["rollout"] = json!({});
        fleet["spec"]["removal"] = json!({"policy": "Orphan"});
        apply(&hub, &fleet).await?;
        crate::knative_fleet::status(&hub, "ready", |s| crate::knative_fleet::has(s, "Ready", "") || s.ready == 1)
            .await?;
        let installed = state(&spoke, PLACE).await?;

        // A newer definition has another policy; then the operator returns to this version.
        let path =
            "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/removal/properties/policy/enum/-";
        let wider = json!([{"op": "add", "path": path, "value": "Retain"}]).to_string();
        let crd = "knativefleets.operator.knative.dev";
        hub.kubectl(&["patch", "crd", crd, "--type=json", "-p", &wider], "").await?;
        let policy = |policy: &str| json!({"spec": {"removal": {"policy": policy}}}).to_string();
        let patch = async |value: &str| {
            let line = ["patch", "knativefleet", "prod", "-n", "platform", "--type=merge", "-p", value];
            let started = Instant::now();
            // Polled: nothing reports when the definition takes effect.
            while let Err(error) = hub.kubectl(&line, "").await {
                assert!(started.elapsed() < wait::LIMIT, "{error}");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        };
        patch(&policy("Retain")).await;
        let says = async |part: &'static str| {
            // Untyped: this version can't read the fleet.
            let gvk = GroupVersionKind::gvk("operator.knative.dev", "v1alpha1", "KnativeFleet");
            let kind = ApiResource::from_gvk_with_plural(&gvk, "knativefleets");
            let fleets: Api<DynamicObject> = Api::namespaced_with(hub.client(), "platform", &kind);
            let says = |fleet: Option<&DynamicObject>| {
                fleet.is_some_and(|fleet| fleet.data["status"]["conditions"].to_string().contains(part))
            };
            wait::until(&fleets, "prod", INSTALL, part, says).await
        };
        says("spec.removal.policy").await?;
        confirm(&hub, "platform", "prod").await?;
        hub.object("knativefleet", "platform", "prod").start_deletion().await?;
        says("nothing is deleted").await?;
        assert_eq!((children(&hub).await?.len(), state(&spoke, PLACE).await?), (1, installed.clone()));

        // Corrected, it is deleted as it says.
        patch(&policy("Orphan")).await;
        gone(&hub, &fleet).await?;
        assert_eq!((children(&hub).await?.len(), state(&spoke, PLACE).await?), (1, installed));
        hub.delete_all("knativeserving", "platform").await?;
        assert!(Api::<Namespace>::all(spoke.client()).get_opt(Component::Serving.canonical()).await?.is_none());
        Ok(())
    });
}
