//! Kills the operator at its writes during a staged rollout and a rollback of a `KnativeFleet` with
//! simulated spokes. The result is that of an undisturbed operator; each cluster is updated once,
//! by the audit log of the hub; and no more clusters than allowed at the same time.
//!
//! `CRASH=each` as in [`crate::crash`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use futures::StreamExt;
use knative_operator_shared::api::{KnativeFleet, KnativeServing};
use knative_operator_shared::label::FLEET_REVISION;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::gate::{Gate, Trap};
use knative_operator_tests::measure::Audit;
use knative_operator_tests::product::{self, FLEET, HUB_USER, Product};
use knative_operator_tests::sim::Sim;
use knative_operator_tests::sim::hub::{TOKEN_PLUGIN, each, name, profile};
use knative_operator_tests::{Result, http, kubelet, releases};
use kube::api::ListParams;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::knative_fleet::{PLACE, fleet, has, status};
use crate::lives::{KillPlan, Lives};
use crate::support::{apply, confirm, namespace, run};

const SPOKES: usize = 5;
/// Clusters that may be updated at the same time.
const CONCURRENT: usize = 2;

#[test]
fn killed_operator_updates_no_cluster_twice() {
    run(async {
        let (sim, mut hub, plugins) =
            (Sim::start(SPOKES).await?, Cluster::hub("kfleet-crash").await?, tempfile::tempdir()?);
        let trap = Arc::new(Trap::default());
        let gate = Gate::open(&hub, &trap).await?;
        hub.set_pod_endpoint(gate.url.clone(), gate.authority.clone());
        let product = Product::create(&hub, &releases::small(), values(plugins.path())?, plugins.path()).await?;
        let mut lives = Lives { hub, product, trap };
        let client = lives.hub.client();
        namespace(&lives.hub, FLEET).await?;
        let all: Vec<usize> = (0..SPOKES).collect();
        each(&all, |n| {
            let labels = json!({"env": "prod", "tier": if n == 0 { "canary" } else { "rest" }});
            profile(client.clone(), n, labels, sim.access(n, "sim"))
        })
        .await?;
        namespace(&lives.hub, PLACE).await?;
        let mut number = 0;
        apply(&lives.hub, &staged(number)).await?;
        status(&lives.hub, "Ready", |s| has(s, "Ready", "Ready")).await?;
        let most = Arc::new(Mutex::new(0));
        let observer = tokio::spawn(observe(client.clone(), Arc::clone(&most)));
        let mut audit = Audit::of(&lives.hub, HUB_USER)?;
        let mut before = generations(&client).await?;

        for kills in KillPlan::all() {
            number += 1;
            let object = staged(number);
            let mut died = lives
                .spend("rollout", kills, async |hub| {
                    apply(hub, &object).await?;
                    status(hub, "Ready", |s| has(s, "Ready", "Ready") && s.updated == 5).await.map(drop)
                })
                .await?;
            assert_eq!(updates(&mut audit, &client, &mut before).await?, all.iter().map(|n| (name(*n), 1)).collect());
            assert!(*most.lock().unwrap() <= CONCURRENT, "{most:?} clusters at the same time, {kills:?}");

            // Two of three clusters fail, one after the canary: all that were touched return.
            let mut broken = object.clone();
            broken["spec"]["serving"]["spec"]["additionalManifests"] = json!([{"URL": "none/there.yaml"}]);
            broken["spec"]["rollout"]["onFailure"] = json!("Rollback");
            let stages =
                json!([{"name": "all", "maxConcurrent": CONCURRENT, "maxFailures": 1, "progressDeadlineSeconds": 3}]);
            broken["spec"]["rollout"]["stages"] = stages;
            died += lives
                .spend("rollback", kills, async |hub| {
                    apply(hub, &broken).await?;
                    status(hub, "rolled back", |s| has(s, "Progressing", "RolledBack")).await.map(drop)
                })
                .await?;
            let touched = updates(&mut audit, &client, &mut before).await?;
            assert!(
                (2..=3).contains(&touched.len()) && touched.values().all(|count| *count == 2),
                "{touched:?}, {kills:?}"
            );
            // Clusters that failed are not Ready, either.
            *most.lock().unwrap() = 0;
            for serving in Api::<KnativeServing>::namespaced(client.clone(), PLACE).list(&ListParams::default()).await?
            {
                let spec = serving.spec.common;
                let value = &spec.config["features"]["number"];
                assert!(spec.additional_manifests.is_empty() && *value == number.to_string(), "{spec:?}");
            }
            if died == 0 {
                break;
            }
        }
        observer.abort();
        confirm(&lives.hub, PLACE, "prod").await?;
        lives.hub.object("knativefleet", PLACE, "prod").delete().await?;
        Ok(())
    });
}

#[test]
fn rollout_continues_on_another_replica() {
    run(async {
        let (sim, hub, plugins) =
            (Sim::start(SPOKES).await?, Cluster::hub("kfleet-replicas").await?, tempfile::tempdir()?);
        let mut values = values(plugins.path())?;
        values["knative_operator"]["multicluster"]["shards"] = json!(4);
        let mut product = Product::create(&hub, &releases::small(), values, plugins.path()).await?;
        let client = hub.client();
        let all: Vec<usize> = (0..SPOKES).collect();
        each(&all, |n| profile(client.clone(), n, json!({"env": "prod"}), sim.access(n, "sim"))).await?;
        namespace(&hub, PLACE).await?;
        let slowly = |number: usize| {
            let mut object = staged(number);
            object["spec"]["rollout"] = json!({"stages": [{"name": "all", "minReadySeconds": 2}]});
            object
        };
        apply(&hub, &staged(0)).await?;
        status(&hub, "Ready", |s| has(s, "Ready", "Ready")).await?;
        let mut second = product.another_operator(&hub).await?;
        let mut audit = Audit::of(&hub, HUB_USER)?;
        let mut before = generations(&client).await?;
        apply(&hub, &slowly(1)).await?;
        status(&hub, "in progress", |s| s.updated == 2 && has(s, "Progressing", "RollingOut")).await?;
        // The replica with shard 0 has the metrics of fleets.
        let text = http::get((second.address, 9090).into(), "/metrics").await?.1;
        let manager =
            if text.contains("knative_operator_fleet_clusters{") { &mut second } else { &mut product.operator };
        manager.process.signal(Signal::KILL)?;
        manager.process.wait()?;
        status(&hub, "Ready", |s| has(s, "Ready", "Ready") && s.updated == 5).await?;
        assert_eq!(updates(&mut audit, &client, &mut before).await?, all.iter().map(|n| (name(*n), 1)).collect());
        confirm(&hub, PLACE, "prod").await?;
        hub.object("knativefleet", PLACE, "prod").start_deletion().await?;
        Ok(())
    });
}

/// Values with fleets, and a plugin for simulated spokes.
fn values(plugins: &Path) -> Result<Value> {
    kubelet::script(&plugins.join("token"), TOKEN_PLUGIN)?;
    let provider = json!({"name": "sim", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/access-plugins/own/token"}});
    let mut values = product::values(&[provider]);
    values["knative_operator"]["fleet"] = json!({"enabled": true});
    Ok(values)
}

/// The fleet: a canary, then the rest. `number` makes the content different.
fn staged(number: usize) -> Value {
    let config = json!({"features": {"number": number.to_string()}});
    let mut object = fleet(&json!({"version": "1.0.0", "ingress": {"kourier": {"enabled": true}}, "config": config}));
    object["spec"]["rollout"] = json!({"stages": [
        {"name": "canary", "clusterSelector": {"matchLabels": {"tier": "canary"}}, "minReadySeconds": 1},
        {"name": "rest", "maxConcurrent": CONCURRENT}]});
    object["spec"]["rollout"]["stages"][1]["name"] = json!("others");
    object
}

/// Cluster, name and generation of each resource of the fleet.
async fn resources(client: &Client) -> Result<Vec<(String, String, i64)>> {
    let all = Api::<KnativeServing>::namespaced(client.clone(), PLACE).list(&ListParams::default()).await?;
    let row =
        |s: KnativeServing| Some((s.spec.common.cluster_profile_ref?.name, s.metadata.name?, s.metadata.generation?));
    Ok(all.into_iter().filter_map(row).collect())
}

/// The generation of each cluster's resource, by cluster.
async fn generations(client: &Client) -> Result<BTreeMap<String, i64>> {
    Ok(resources(client).await?.into_iter().map(|(cluster, _, generation)| (cluster, generation)).collect())
}

/// Number of updates of each cluster's resource since the last call, by cluster: requests, or
/// generations if there are more. A request of an operator that was killed may be stored although
/// the audit log says that it was not (504). What came of an update is recorded without taking
/// fields over, and doesn't count. `before` are the generations at the last call.
async fn updates(
    audit: &mut Audit,
    client: &Client,
    before: &mut BTreeMap<String, i64>,
) -> Result<BTreeMap<String, usize>> {
    let requests = audit.take_all(client).await?;
    let all = resources(client).await?;
    let clusters: BTreeMap<&str, &str> = all.iter().map(|(cluster, name, _)| (&**name, &**cluster)).collect();
    let mut updates = BTreeMap::<String, usize>::new();
    for request in requests.iter().filter(|request| request.verb == "patch" && request.forces && request.code < 300) {
        let resource = request.target.strip_prefix("knativeservings.operator.knative.dev/");
        if let Some(cluster) = resource.and_then(|name| clusters.get(name)) {
            *updates.entry((*cluster).to_owned()).or_default() += 1;
        }
    }
    for (cluster, _, generation) in &all {
        let grown = usize::try_from(generation - before.insert(cluster.clone(), *generation).unwrap_or(0))?;
        if grown > 0 {
            let count = updates.entry(cluster.clone()).or_default();
            *count = grown.max(*count);
        }
    }
    Ok(updates)
}

/// Records the highest number of clusters that were updated at the same time: those that have the
/// update revision and are not Ready in their generation.
async fn observe(client: Client, most: Arc<Mutex<usize>>) {
    let fleets = Api::<KnativeFleet>::namespaced(client.clone(), PLACE);
    let api = Api::<KnativeServing>::namespaced(client, PLACE);
    let mut all: BTreeMap<String, KnativeServing> = BTreeMap::new();
    let mut events = watcher(api, watcher::Config::default()).default_backoff().applied_objects().boxed();
    while let Some(event) = events.next().await {
        let Ok(serving) = event else { continue };
        all.insert(serving.metadata.name.clone().unwrap_or_default(), serving);
        let Ok(fleet) = fleets.get("prod").await else { continue };
        let update = fleet.status.and_then(|status| status.update_revision);
        let is_updating = |serving: &&KnativeServing| {
            let revision = serving.metadata.annotations.as_ref().and_then(|all| all.get(FLEET_REVISION));
            let status = serving.status.as_ref();
            let is_ready = status.is_some_and(|status| {
                status.observed_generation == serving.metadata.generation
                    && status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
            });
            revision == update.as_ref() && !is_ready
        };
        let updating = all.values().filter(is_updating).count();
        let mut most = most.lock().unwrap();
        *most = updating.max(*most);
    }
}
