//! An operator with a newer release bundle that starts in the middle of a rollout of a fleet: what
//! the version of the fleet means now is another revision, which passes each stage again.

use knative_operator_shared::api::{KnativeFleetStatus, KnativeServing};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::FLEET;
use knative_operator_tests::{Result, wait};
use kube::Api;
use kube::api::ListParams;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::versions::bundle;
use crate::knative_fleet::{PLACE, approve, fleet, has, status, two_spokes};
use crate::status::command;
use crate::support::{apply, run};

/// Seconds for which the canary must be Ready. While the operator is stopped, they don't pass.
const SOAK: u32 = 20;

/// A fleet with the version `1.1`, and another setting if `is_changed`.
fn staged(is_changed: bool) -> Value {
    let mut object = fleet(&json!({"version": "1.1", "ingress": {"kourier": {"enabled": true}}}));
    let mut stages =
        json!([{"name": "canary", "clusterSelector": {"matchLabels": {"tier": "canary"}}}, {"name": "prod"}]);
    if is_changed {
        object["spec"]["serving"]["spec"]["config"] = json!({"defaults": {"revision-timeout-seconds": "30"}});
        stages[0]["minReadySeconds"] = json!(SOAK);
        stages[1]["approval"] = json!("Required");
    }
    object["spec"]["rollout"] = json!({"stages": stages});
    object
}

/// Cluster and version of each resource, and whether it has the setting.
async fn resources(hub: &Cluster) -> Result<Vec<(String, String, bool)>> {
    let all = Api::<KnativeServing>::namespaced(hub.client(), PLACE).list(&ListParams::default()).await?;
    let row = |serving: KnativeServing| {
        let common = serving.spec.common;
        let cluster = common.cluster_profile_ref.map(|cluster| cluster.name).unwrap_or_default();
        (cluster, common.version.unwrap_or_default(), common.config.contains_key("defaults"))
    };
    let mut all: Vec<_> = all.into_iter().map(row).collect();
    all.sort();
    Ok(all)
}

#[test]
fn newer_bundle_in_a_rollout_passes_each_stage_again() {
    run(async {
        let folder = tempfile::tempdir()?;
        let folder = folder.path();
        let releases = bundle(&folder.join("bundle"), &[])?;
        let (hub, _spokes, mut product, _plugins) = two_spokes(&releases, "kfleet-bundle").await?;
        hub.object("clusterprofile", FLEET, "a").label(&json!({"tier": "canary"})).await?;
        apply(&hub, &staged(false)).await?;
        status(&hub, "Ready", |status| has(status, "Ready", "Ready") && status.updated == 2).await?;
        let of = |cluster: &str, version: &str, is_changed| (cluster.to_owned(), version.to_owned(), is_changed);
        assert_eq!(resources(&hub).await?, [of("a", "1.1.0", false), of("b", "1.1.0", false)]);

        // A change is in progress on the canary. It is approved for the other stage while no
        // operator runs, so that none goes on there before the next one starts.
        apply(&hub, &staged(true)).await?;
        let is_updating = |status: &KnativeFleetStatus| status.stages.first().is_some_and(|stage| stage.updating == 1);
        let begun = status(&hub, "in progress", is_updating).await?.update_revision.unwrap_or_default();
        let servings = Api::<KnativeServing>::namespaced(hub.client(), PLACE);
        let is_begun = |all: &[KnativeServing]| all.iter().any(|one| one.spec.common.config.contains_key("defaults"));
        wait::until_all(&servings, "", wait::LIMIT, "changed on the canary", is_begun).await?;
        product.stop_operator(Signal::TERM)?;
        approve(&hub, &begun, "prod").await?;
        assert_eq!(resources(&hub).await?, [of("a", "1.1.0", true), of("b", "1.1.0", false)]);
        bundle(&folder.join("bundle"), &["1.1.1"])?;
        product.start_operator(&hub).await?;

        // The canary gets the newer version first. The approval was for another revision.
        let is_next = |status: &KnativeFleetStatus| {
            has(status, "Progressing", "AwaitingApproval") && status.update_revision.as_deref() != Some(begun.as_str())
        };
        let next = status(&hub, "awaiting another approval", is_next).await?;
        let waiting = [of("a", "1.1.1", true), of("b", "1.1.0", false)];
        assert_eq!(resources(&hub).await?, waiting);

        // A plan shows what another version means to the operator, and changes nothing.
        let mut planned = staged(true);
        planned["spec"]["serving"]["spec"]["version"] = json!("1.0");
        let file = folder.join("fleet.json");
        std::fs::write(&file, planned.to_string())?;
        let file = file.display().to_string();
        let (code, text, problem) = command(&hub.kubeconfig(), &["fleet", "plan", "-f", &file]).await?;
        assert_eq!(code, Some(0), "{text}{problem}");
        for part in [
            "KnativeServing   1.0       -     1.0.0\n",
            "spec.version: \"1.1.1\" to \"1.0.0\"",
            "spec.version: \"1.1.0\" to \"1.0.0\"",
            "at least 20s in all",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(resources(&hub).await?, waiting);

        approve(&hub, next.update_revision.as_deref().unwrap_or_default(), "prod").await?;
        status(&hub, "Ready", |status| has(status, "Ready", "Ready") && status.updated == 2).await?;
        assert_eq!(resources(&hub).await?, [of("a", "1.1.1", true), of("b", "1.1.1", true)]);
        Ok(())
    });
}
