//! Which clusters a fleet gets although nobody permitted its author to use them.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::cluster::apply::DRY_RUN;
use knative_operator_tests::product::FLEET;
use knative_operator_tests::{Result, wait};
use kube::Api;
use serde_json::{Value, json};

use super::attacker::Attacker;
use super::fleets::{AUTHOR, PLANNER, SCHEDULER, SCHEDULES, Site, child, eventing, settle};
use super::report::Outcome;
use super::settle::remove;
use crate::knative_fleet::{PLACE, has, status_of};
use crate::support::{INSTALL, apply};

/// Whether a fleet has installed Knative Eventing on cluster `b`.
async fn is_on_b(site: &Site) -> Result<bool> {
    if child(&site.hub, Component::Eventing, "b").await?.is_none() {
        return Ok(false);
    }
    let namespaces = Api::<Namespace>::all(site.b.client());
    let exists = |namespace: Option<&Namespace>| namespace.is_some();
    wait::until(&namespaces, Component::Eventing.canonical(), INSTALL, "created", exists).await?;
    Ok(true)
}

/// Waits until the webhook knows the clusters that `fleet` selects.
async fn known_to_webhook(hub: &Cluster, fleet: &Value) -> Result<()> {
    let started = Instant::now();
    // Polled: nothing reports what the webhook knows.
    while hub.try_apply(fleet, DRY_RUN).await.1.contains("selects no ClusterProfile") {
        if started.elapsed() > wait::LIMIT {
            return Err("the webhook doesn't know the ClusterProfiles".into());
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

/// Wanted: Eventing on clusters that the author of the change may not use, by a fleet that others
/// placed there.
pub async fn get_another_component(site: &Site) -> Result<Outcome> {
    let patch = json!({"spec": {"eventing": {"spec": {"version": "1.1.0"}}}}).to_string();
    let line = ["patch", "knativefleet", "prod", "-n", PLACE, "--type=merge", "-p", &patch];
    let attempt = Attacker::new(&site.hub, AUTHOR).kubectl(&line, "").await?;
    settle(&site.hub, "prod").await?;
    let is_there = child(&site.hub, Component::Eventing, "a").await?.is_some();
    Ok(Outcome::of(is_there, "Eventing is on clusters of others", &attempt))
}

/// Wanted: an installation on `b`, which joins after the fleet was admitted for `a`.
pub async fn capture_future_cluster(site: &Site) -> Result<Outcome> {
    let hub = &site.hub;
    let selector = json!({"matchExpressions": [{"key": "site", "operator": "NotIn", "values": ["elsewhere"]}]});
    let placement = json!({"clusterSelector": selector, "namespaces": [FLEET]});
    let capturing = eventing("capturing", &placement, &json!({"version": "1.1.0"}));
    known_to_webhook(hub, &capturing).await?;
    let attempt = Attacker::new(hub, AUTHOR).apply(&capturing).await?;
    if attempt.is_ok() {
        status_of(hub, "capturing", "Ready", |s| has(s, "Ready", "Ready")).await?;
    }
    site.register("b", "rest").await?;
    // The operator knows the new cluster, when it is one of another fleet.
    status_of(hub, "prod", "with both clusters", |s| s.clusters == 2).await?;
    if attempt.is_ok() {
        settle(hub, "capturing").await?;
    }
    let is_there = is_on_b(site).await?;
    remove(hub, &capturing).await?;
    Ok(Outcome::of(is_there, "Knative is installed on a cluster that joined later", &attempt))
}

/// A decision for `b` in `namespace`.
fn decision(namespace: &str) -> Value {
    json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "PlacementDecision",
        "metadata": {"name": "decision", "namespace": namespace, "labels": {"multicluster.x-k8s.io/decision-key": "decision"}},
        "decisions": [{"clusterProfileRef": {"name": "b", "namespace": FLEET}}]})
}

/// Wanted, by a user who may use no cluster: an installation on `b`, by a fleet whose author has no
/// permission in the namespace of the decisions.
pub async fn are_steered(site: &Site) -> Result<Outcome> {
    let (hub, spec) = (&site.hub, json!({"version": "1.1.0"}));
    let placement = json!({"decision": {"key": "decision", "namespace": SCHEDULES}});
    let steered = eventing("decided", &placement, &spec);
    let attempt = Attacker::new(hub, PLANNER).apply(&steered).await?;
    let written = Attacker::new(hub, SCHEDULER).apply(&decision(SCHEDULES)).await?;
    // The operator knows that decision, when a fleet has the cluster of a later one.
    apply(hub, &decision(PLACE)).await?;
    let mut own = eventing("own", &json!({"decision": {"key": "decision"}}), &spec);
    own["spec"]["rollout"] = json!({"paused": true});
    apply(hub, &own).await?;
    status_of(hub, "own", "with its cluster", |s| s.clusters == 1).await?;
    if attempt.is_ok() {
        settle(hub, "decided").await?;
    }
    let is_there = is_on_b(site).await?;
    remove(hub, &steered).await?;
    remove(hub, &own).await?;
    Ok(Outcome::of(is_there, "Knative is installed where somebody else decided", &attempt.and(written)))
}
