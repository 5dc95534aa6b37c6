//! An update of a fleet after which a cluster can't be reached any more: the cluster has failed,
//! and was not deferred. No other one is started until a person acts.

use knative_operator_shared::api::KnativeFleetStatus;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::FLEET;
use knative_operator_tests::{Result, releases};
use serde_json::{Value, json};

use crate::knative_fleet::{PLACE, children, fleet, has, status, two_spokes};
use crate::knative_fleet_clusters::attention;
use crate::status::command;
use crate::support::{apply, run};

/// A fleet with a canary that must be Ready for some seconds.
fn staged(version: &str, min_ready: u32) -> Value {
    let mut object = fleet(&json!({"version": version, "ingress": {"kourier": {"enabled": true}}}));
    object["spec"]["rollout"] = json!({"stages": [
        {"name": "canary", "clusterSelector": {"matchLabels": {"tier": "canary"}}, "minReadySeconds": min_ready,
            "progressDeadlineSeconds": 10},
        {"name": "prod"},
    ]});
    object
}

async fn fleet_command(hub: &Cluster, arguments: &[&str]) -> Result<()> {
    let arguments = [&["fleet"][..], arguments, &["-n", PLACE]].concat();
    let (code, output, problem) = command(&hub.kubeconfig(), &arguments).await?;
    assert_eq!(code, Some(0), "{output}{problem}");
    Ok(())
}

#[test]
fn cluster_that_is_lost_by_its_update_has_failed() {
    run(async {
        let releases = releases::small();
        let (hub, [mut a, _b], _product, _plugins) = two_spokes(&releases, "kfleet-lost").await?;
        hub.object("clusterprofile", FLEET, "a").label(&json!({"tier": "canary"})).await?;
        apply(&hub, &staged("1.0.0", 0)).await?;
        status(&hub, "Ready", |status| has(status, "Ready", "Ready") && status.updated == 2).await?;
        let versions = |a: &str, b: &str| vec![("a".to_owned(), a.to_owned()), ("b".to_owned(), b.to_owned())];

        // The canary is Ready in the new version, and not for long enough, when it is lost.
        apply(&hub, &staged("1.1.0", 3600)).await?;
        let is_soaking = |status: &KnativeFleetStatus| {
            status.ready == 2 && status.stages.first().is_some_and(|stage| stage.updating == 1)
        };
        status(&hub, "soaking", is_soaking).await?;
        a.stop_apiserver();
        let failed = status(&hub, "stopped", |status| has(status, "Paused", "TooManyFailures")).await?;
        assert_eq!((failed.failed, failed.deferred, failed.updated), (1, 0, 0), "{failed:?}");
        assert!(attention(&failed, "a", "Unreachable", "is unreachable"), "{failed:?}");
        assert!(has(&failed, "Stalled", "TooManyFailures"), "{failed:?}");
        assert_eq!(children(&hub).await?, versions("1.1.0", "1.0.0"));

        // It stays one that failed when it is back, and Ready.
        a.start_apiserver().await?;
        let back = status(&hub, "back", |status| status.ready == 2).await?;
        assert!(has(&back, "Paused", "TooManyFailures") && back.failed == 1, "{back:?}");
        assert_eq!(children(&hub).await?, versions("1.1.0", "1.0.0"));

        // A pause hides no failure.
        fleet_command(&hub, &["pause", "prod", "--reason=I look at it"]).await?;
        let message = |status: &KnativeFleetStatus| {
            let condition = status.conditions.iter().find(|condition| condition.type_ == "Paused");
            condition.and_then(|condition| condition.message.clone()).unwrap_or_default()
        };
        let paused = status(&hub, "paused", |status| message(status).contains("I look at it")).await?;
        assert!(message(&paused).contains("1 of 1 clusters of stage canary failed"), "{paused:?}");
        for type_ in ["Paused", "Stalled"] {
            assert!(has(&paused, type_, "TooManyFailures"), "{paused:?}");
        }
        let waits_for = paused.stages.first().and_then(|stage| stage.waits_for.clone()).unwrap_or_default();
        assert!(waits_for.starts_with("a person: 1 of 1 clusters failed; "), "{waits_for}");

        // After a change by a person, it is observed again.
        fleet_command(&hub, &["resume", "prod"]).await?;
        apply(&hub, &staged("1.1.0", 0)).await?;
        status(&hub, "Ready", |status| has(status, "Ready", "Ready") && status.updated == 2).await?;
        assert_eq!(children(&hub).await?, versions("1.1.0", "1.1.0"));
        Ok(())
    });
}
