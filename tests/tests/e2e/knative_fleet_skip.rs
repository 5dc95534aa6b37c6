//! A cluster that can't be updated holds its stage, until a person lets the rollout skip it, and is
//! updated when it is tried again. Clusters begin in the order of a label, and soak. A failure that
//! the API server refuses to record is reported.

use std::time::{Duration, Instant};

use knative_operator_shared::api::KnativeServing;
use knative_operator_shared::api::fleet::{KnativeFleetStatus, StageState};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::FLEET;
use knative_operator_tests::{Result, releases, wait};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::knative_fleet::{PLACE, fleet, has, status, two_spokes};
use crate::knative_fleet_clusters::attention;
use crate::status::command;
use crate::support::{INSTALL, admit, apply, forbid, has_event, run};

/// Kinds of what makes a policy.
const POLICY: [&str; 2] = ["validatingadmissionpolicy", "validatingadmissionpolicybinding"];

/// Makes the hub's policy `policy` refuse the record of an update that failed.
async fn forbid_failures(hub: &Cluster, policy: &str) -> Result<()> {
    let outcome = "operator.knative.dev/fleet-outcome";
    let annotations = "object.metadata.annotations";
    let expression = format!(
        "!has({annotations}) || !('{outcome}' in {annotations}) || !{annotations}['{outcome}'].startsWith('Failed')"
    );
    admit(hub, policy, ("operator.knative.dev", "v1beta1", "knativeservings"), &expression).await?;
    let failed = format!("{outcome}=Failed/1/NotReady");
    let annotate = ["annotate", "knativeservings", "--all", "-n", PLACE, "--overwrite", "--dry-run=server", &failed];
    let started = Instant::now();
    // Polled: nothing reports when the policy takes effect.
    while !hub.kubectl_output(&annotate, "").await.1.contains(policy) {
        assert!(started.elapsed() < wait::LIMIT, "the policy {policy} has no effect yet");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Clusters whose resource has the setting.
async fn changed(hub: &Cluster) -> Result<Vec<String>> {
    let all = Api::<KnativeServing>::namespaced(hub.client(), PLACE).list(&ListParams::default()).await?;
    let has_it = |serving: &KnativeServing| serving.spec.common.config.contains_key("defaults");
    let cluster = |serving: KnativeServing| serving.spec.common.cluster_profile_ref.map(|cluster| cluster.name);
    Ok(all.into_iter().filter(has_it).filter_map(cluster).collect())
}

fn staged(config: &Value) -> Value {
    let mut object = fleet(&json!({"version": "1.0.0", "ingress": {"kourier": {"enabled": true}}, "config": config}));
    object["spec"]["rollout"] = json!({"stages": [
        {"name": "all", "sortingLabelKey": "wave", "soakSeconds": 2, "progressDeadlineSeconds": 15},
    ]});
    object
}

#[test]
fn cluster_that_failed_is_skipped_and_tried_again() {
    run(async {
        let releases = releases::small();
        let (hub, [_a, b], _product, _plugins) = two_spokes(&releases, "kfleet-skip").await?;
        // By name, it would be the last.
        hub.kubectl(&["label", "clusterprofile", "b", "-n", FLEET, "wave=1"], "").await?;
        let begun = Instant::now();
        let mut first = staged(&json!({}));
        first["spec"]["rollout"]["stages"][0]["progressDeadlineSeconds"] = json!(INSTALL.as_secs());
        apply(&hub, &first).await?;
        status(&hub, "Ready", |status| has(status, "Ready", "Ready") && status.updated == 2).await?;
        // The second one begins while the first one soaks.
        assert!(begun.elapsed() >= Duration::from_secs(2), "nothing soaked");

        let policy = "no-defaults";
        let defaults = json!({"apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "config-defaults", "namespace": "knative-serving"}});
        forbid(&b, policy, "configmaps", &defaults).await?;
        let unrecorded = "no-failures";
        forbid_failures(&hub, unrecorded).await?;
        apply(&hub, &staged(&json!({"defaults": {"revision-timeout-seconds": "30"}}))).await?;
        // A failure that the API server refuses to record is reported, and one all the same.
        let is_reported = |status: &KnativeFleetStatus| attention(status, "b", "OutcomeNotStored", unrecorded);
        let reported = status(&hub, "not recorded", is_reported).await?;
        assert_eq!((reported.stages[0].state, reported.failed), (StageState::Paused, 1), "{reported:?}");
        has_event(&hub, PLACE, "OutcomeNotStored", &format!("{FLEET}/b")).await?;
        for kind in POLICY {
            hub.kubectl(&["delete", kind, unrecorded], "").await?;
        }
        let stopped = status(&hub, "stopped", |status| status.failed == 1 && !is_reported(status)).await?;
        assert_eq!((stopped.stages[0].state, changed(&hub).await?), (StageState::Paused, vec!["b".to_owned()]));

        let fleet_command = async |verb: &str| {
            let cluster = format!("{FLEET}/b");
            let (code, output, problem) =
                command(&hub.kubeconfig(), &["fleet", verb, "prod", &cluster, "-n", PLACE]).await?;
            assert_eq!(code, Some(0), "{output}{problem}");
            Ok::<_, knative_operator_tests::Error>(output)
        };
        let output = fleet_command("skip").await?;
        assert!(output.contains(&format!("{FLEET}/b: KnativeServing {PLACE}/")), "{output}");
        let skipped = status(&hub, "skipped", |status| {
            attention(status, "b", "Skipped", "a person") && has(status, "Progressing", "Complete")
        });
        let skipped = skipped.await?;
        assert_eq!((skipped.updated, skipped.deferred, skipped.failed), (1, 1, 0), "{skipped:?}");
        assert_eq!(changed(&hub).await?.len(), 2);
        has_event(&hub, PLACE, "Skipped", &format!("{FLEET}/b")).await?;

        for kind in POLICY {
            b.kubectl(&["delete", kind, policy], "").await?;
        }
        // What was refused is tried again after a pause that grows, maybe beyond the deadline.
        let servings = Api::<KnativeServing>::namespaced(hub.client(), PLACE);
        let is_ready = |serving: &KnativeServing| {
            let conditions = serving.status.iter().flat_map(|status| &status.conditions);
            conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        };
        let all_ready = |all: &[KnativeServing]| all.len() == 2 && all.iter().all(is_ready);
        wait::until_all(&servings, "", INSTALL, "Ready", all_ready).await?;
        let still = status(&hub, "still skipped", |status| attention(status, "b", "Skipped", "")).await?;
        assert_eq!(still.updated, 1, "{still:?}");
        fleet_command("retry").await?;
        let done = status(&hub, "updated", |status| status.updated == 2 && has(status, "Ready", "Ready")).await?;
        assert_eq!((done.deferred, done.failed, done.attention.len()), (0, 0, 0), "{done:?}");
        Ok(())
    });
}
