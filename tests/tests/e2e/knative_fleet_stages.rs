//! No stage is passed by: one without clusters waits for its approval, one whose clusters are all
//! deferred for a cluster, and the one after a canary for the time that the canary must be Ready,
//! also when another replica with another clock takes over.

use std::time::{Duration, Instant};

use knative_operator_shared::api::fleet::{KnativeFleetStatus, StageState};
use knative_operator_shared::api::{Condition, KnativeServing};
use knative_operator_tests::clock::Clock;
use knative_operator_tests::product::{self, FLEET};
use knative_operator_tests::{releases, wait};
use kube::Api;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::knative_fleet::{PLACE, approve, children, fleet, has, status, two_spokes};
use crate::knative_fleet_clusters::attention;
use crate::support::{INSTALL, apply, run};

const HOUR: i64 = 3600;
/// Seconds for which the canary must be Ready.
const MIN_READY: u64 = 5;

/// A fleet with `version` and `stages`, and one for the rest.
fn staged(version: &str, stages: &[Value]) -> Value {
    let mut object = fleet(&json!({"version": version, "ingress": {"kourier": {"enabled": true}}}));
    let stages: Vec<Value> = stages.iter().cloned().chain([json!({"name": "prod"})]).collect();
    object["spec"]["rollout"] = json!({"stages": stages});
    object
}

/// A stage for the clusters of the tier `name`.
fn stage(name: &str) -> Value {
    json!({"name": name, "clusterSelector": {"matchLabels": {"tier": name}}})
}

/// A canary that needs an approval, and must be Ready for `seconds`.
fn approved_canary(seconds: u64) -> Value {
    let mut canary = stage("canary");
    canary["approval"] = json!("Required");
    canary["minReadySeconds"] = json!(seconds);
    canary
}

fn states(status: &KnativeFleetStatus) -> Vec<StageState> {
    status.stages.iter().map(|stage| stage.state).collect()
}

/// The clusters `a` and `b` with the versions that their resources have.
fn versions(a: &str, b: &str) -> Vec<(String, String)> {
    vec![("a".to_owned(), a.to_owned()), ("b".to_owned(), b.to_owned())]
}

#[test]
fn no_stage_is_passed_by() {
    run(async {
        let releases = releases::small();
        let (hub, [a, _b], mut product, _plugins) = two_spokes(&releases, "kfleet-stages").await?;
        hub.object("clusterprofile", FLEET, "a").label(&json!({"tier": "canary"})).await?;

        // No cluster has the label of the second stage: it may be mistyped.
        let mut early = stage("early");
        early["approval"] = json!("Required");
        apply(&hub, &staged("1.0.0", &[stage("canary"), early])).await?;
        let is_waiting = |status: &KnativeFleetStatus| has(status, "Progressing", "AwaitingApproval");
        let empty = status(&hub, "awaiting approval", is_waiting).await?;
        assert_eq!((empty.stage.as_deref(), empty.stages[1].clusters), (Some("early"), 0), "{empty:?}");
        assert_eq!(states(&empty), [StageState::Complete, StageState::AwaitingApproval, StageState::Pending]);
        assert_eq!(children(&hub).await?, [("a".to_owned(), "1.0.0".to_owned())]);
        approve(&hub, empty.update_revision.as_deref().unwrap_or_default(), "early").await?;
        status(&hub, "Ready", |status| has(status, "Ready", "Ready") && status.updated == 2).await?;
        assert_eq!(children(&hub).await?, versions("1.0.0", "1.0.0"));

        // The only cluster of the first stage is not healthy when its turn comes.
        let why = "ControlPlaneHealthy is False";
        product::status(&hub, "a", "False", &product::access(&a, "a")).await?;
        status(&hub, "not healthy", |status| attention(status, "a", "Unreachable", why)).await?;
        apply(&hub, &staged("1.1.0", &[approved_canary(3600)])).await?;
        let deferred = status(&hub, "waiting", |status| has(status, "Progressing", "WaitingForClusters")).await?;
        assert!(attention(&deferred, "a", "Deferred", why), "{deferred:?}");
        assert_eq!((deferred.deferred, deferred.updated, deferred.failed), (1, 0, 0), "{deferred:?}");
        assert_eq!(states(&deferred), [StageState::Progressing, StageState::Pending]);
        let is_progressing = |condition: &&Condition| condition.type_ == "Progressing";
        let message = deferred.conditions.iter().find(is_progressing).and_then(|condition| condition.message.clone());
        let part = "later stages wait until a cluster of this stage is updated: each is deferred";
        assert!(message.is_some_and(|message| message.contains(part)), "{deferred:?}");
        assert!(has(&deferred, "Ready", "WaitingForClusters"), "{deferred:?}");
        assert_eq!(children(&hub).await?, versions("1.0.0", "1.0.0"));

        // It is healthy again, and its stage needs the approval that nobody gave.
        product::status(&hub, "a", "True", &product::access(&a, "a")).await?;
        let back = status(&hub, "awaiting approval", is_waiting).await?;
        assert_eq!((back.stage.as_deref(), back.deferred), (Some("canary"), 0), "{back:?}");
        assert_eq!(children(&hub).await?, versions("1.0.0", "1.0.0"));
        approve(&hub, back.update_revision.as_deref().unwrap_or_default(), "canary").await?;
        let is_soaking = |status: &KnativeFleetStatus| {
            status.ready == 2 && status.stages.first().is_some_and(|stage| stage.updating == 1)
        };
        status(&hub, "soaking", is_soaking).await?;
        assert_eq!(children(&hub).await?, versions("1.1.0", "1.0.0"));

        // Another replica takes over, whose clock is an hour ahead, and then an hour behind.
        product.stop_operator(Signal::TERM)?;
        apply(&hub, &staged("1.1.0", &[approved_canary(MIN_READY)])).await?;
        let clock = Clock::new(&hub.dir().join("clock"))?;
        clock.set(HOUR)?;
        let begun = Instant::now();
        product.start_operator_with_clock(&hub, &clock).await?;
        clock.set(-HOUR)?;
        let is_new = |serving: &&KnativeServing| serving.spec.common.version.as_deref() == Some("1.1.0");
        let servings = Api::<KnativeServing>::namespaced(hub.client(), PLACE);
        let all_new = |all: &[KnativeServing]| all.iter().filter(is_new).count() == 2;
        wait::until_all(&servings, "", INSTALL, "of the new version", all_new).await?;
        let elapsed = begun.elapsed();
        assert!(elapsed >= Duration::from_secs(MIN_READY), "the next stage began after {elapsed:?}");
        status(&hub, "Ready", |status| has(status, "Ready", "Ready") && status.updated == 2).await?;
        Ok(())
    });
}
