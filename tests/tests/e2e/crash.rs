//! Kills the operator at its writes during install, upgrade, ingress change, handover to another
//! resource and deletion; the result equals that of an undisturbed run.
//!
//! Each life of the operator ends at a later write, alternating between before the API server
//! receives it and before the response. `CRASH=each` repeats each stage for each of its writes and
//! kills the operator once at that write, which takes twenty minutes (`CRASH=20`: from the
//! twentieth write on); `CRASH_RELEASES=real` uses Knative's releases.

use std::collections::BTreeMap;
use std::sync::Arc;

use knative_operator_shared::api::KnativeStatus;
use knative_operator_tests::applied;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::gate::{Gate, Trap};
use knative_operator_tests::measure::{self, Audit};
use knative_operator_tests::product::{self, Product, values};
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, releases};
use serde_json::{Value, json};

use crate::lives::{KillPlan, Lives};
use crate::support::{
    INSTALL, apply, condition, delete, gone, has_condition, jobs_done, namespace, nothing_left, run, serving, status,
};

#[test]
fn killed_operator_reaches_same_state_as_undisturbed_one() {
    run(async {
        let real = std::env::var_os("CRASH_RELEASES").is_some_and(|v| v == "real");
        let releases = if real { releases::best() } else { releases::small() };
        let versions = if real { ["1.21.3", "1.22.1"] } else { ["1.0.0", "1.1.0"] };
        let (mut hub, mut spoke, calm) =
            tokio::try_join!(Cluster::hub("crash"), Cluster::spoke("crashed"), Cluster::spoke("calm"))?;
        let trap = Arc::new(Trap::default());
        let gates = (Gate::open(&hub, &trap).await?, Gate::open(&spoke, &trap).await?);
        hub.set_pod_endpoint(gates.0.url.clone(), gates.0.authority.clone());
        spoke.set_pod_endpoint(gates.1.url.clone(), gates.1.authority.clone());
        let plugins = tempfile::tempdir()?;
        let product = Product::create(&hub, &releases, values(&[]), plugins.path()).await?;
        let mut lives = Lives { hub, product, trap };
        for (cluster, name) in [(&spoke, "crash"), (&calm, "calm")] {
            product::register(&lives.hub, cluster, name).await?;
            namespace(&lives.hub, name).await?;
        }
        // Another ClusterProfile of the same spoke.
        product::profile(&lives.hub, "next", &product::access(&spoke, "crash")).await?;
        namespace(&lives.hub, "next").await?;
        let before = objects(&spoke.client()).await?;

        // With the same name in two namespaces of the hub, all names on the spokes are equal.
        let mut calm_one = serving("calm", "ks", Some("calm"), &releases);
        calm_one["spec"]["config"]["network"]["ingress-class"] = json!("somebody.example/ingress");
        let kourier = json!({"kourier": {"enabled": true}});
        let stages = [
            ("install", versions[0], kourier.clone()),
            ("upgrade", versions[1], kourier),
            ("switch", versions[1], json!({"istio": {"enabled": false}})),
        ];
        let mut expected = Vec::new();
        for (_, version, ingress) in &stages {
            (calm_one["spec"]["version"], calm_one["spec"]["ingress"]) = (json!(version), ingress.clone());
            apply(&lives.hub, &calm_one).await?;
            installed(&lives.hub, &calm_one, version).await?;
            expected.push(state(&calm).await?);
            assert!(expected.iter().all(|e| e.len() > 10), "{expected:#?}");
        }
        let mut audit = Audit::of(&calm, product::SPOKE_USER)?;
        for kills in KillPlan::all() {
            let mut died = 0;
            let mut one = serving("crash", "ks", Some("crash"), &releases);
            one["spec"]["config"] = calm_one["spec"]["config"].clone();
            for ((what, version, ingress), expected) in stages.iter().zip(&expected) {
                (one["spec"]["version"], one["spec"]["ingress"]) = (json!(version), ingress.clone());
                died += lives
                    .spend(what, kills, async |hub| {
                        apply(hub, &one).await?;
                        installed(hub, &one, version).await?;
                        // The last write comes when the Jobs are complete.
                        jobs_done(&spoke, "knative-serving", "knativeserving-ks-root-owner").await.map(drop)
                    })
                    .await?;
                let is = state(&spoke).await?;
                assert_eq!(is.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>(), "{what} {kills:?}");
                for (name, object) in expected {
                    assert_eq!(is[name], *object, "{what} {kills:?}: {name}");
                }
            }
            let mut next = one.clone();
            next["metadata"]["namespace"] = json!("next");
            next["spec"]["clusterProfileRef"]["name"] = json!("next");
            apply(&lives.hub, &next).await?;
            has_condition(&lives.hub, &next, "InstallSucceeded", "Occupied", "KnativeServing crash/ks").await?;
            died += lives
                .spend("handover", kills, async |hub| {
                    hub.stored(&one).start_deletion().await?;
                    gone(hub, &one).await?;
                    installed(hub, &next, versions[1]).await?;
                    jobs_done(&spoke, "knative-serving", "knativeserving-ks-root-owner").await.map(drop)
                })
                .await?;
            assert_eq!(fresh(state(&spoke).await?), fresh(expected[stages.len() - 1].clone()), "handover {kills:?}");
            died += lives
                .spend("deletion", kills, async |hub| {
                    hub.stored(&next).start_deletion().await?;
                    gone(hub, &next).await
                })
                .await?;
            nothing_left(&spoke, &before).await?;
            if died == 0 {
                break;
            }
        }
        // The restarts wrote nothing where nothing had changed.
        let writes: Vec<_> = audit.take()?.into_iter().filter(measure::Request::writes).collect();
        assert!(writes.is_empty(), "{writes:#?}");
        delete(&lives.hub, &calm_one).await
    });
}

/// Waits until `version` of `resource`, a KnativeServing with the name `ks`, is installed and its
/// newest generation is Ready.
pub async fn installed(hub: &Cluster, resource: &Value, version: &str) -> Result<()> {
    let place = resource["metadata"]["namespace"].as_str().unwrap();
    let generation = hub.object("knativeserving", place, "ks").read().await?["metadata"]["generation"].as_i64();
    let ready = |s: &KnativeStatus| {
        s.version.as_deref() == Some(version)
            && s.observed_generation == generation
            && condition(s, "Ready").is_some_and(|c| c.status == "True")
    };
    status(hub, resource, INSTALL, &format!("ready with {version}"), ready).await.map(drop)
}

/// `state` without what an upgrade leaves: former ReplicaSets, and numbers of revisions.
fn fresh(mut state: BTreeMap<String, Value>) -> BTreeMap<String, Value> {
    state.retain(|name, _| !name.starts_with("ReplicaSet "));
    for object in state.values_mut() {
        if let Some(annotations) = object["annotations"].as_object_mut() {
            annotations.remove("deployment.kubernetes.io/revision");
        }
    }
    state
}

/// All applied objects, and the inventory.
async fn state(cluster: &Cluster) -> Result<BTreeMap<String, Value>> {
    let mut state = applied::objects(cluster).await?;
    let anchor = jobs_done(cluster, "knative-serving", "knativeserving-ks-root-owner").await?;
    state.insert("inventory".to_owned(), json!(anchor.data));
    Ok(state)
}
