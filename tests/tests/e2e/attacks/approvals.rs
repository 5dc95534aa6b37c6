//! Ways around the approval of a stage, for an editor of the fleet who may not approve. Wanted each
//! time: the new content on cluster `b`.

use knative_operator_shared::api::Component;
use knative_operator_shared::label::{FLEET_CONTENT, FLEET_REVISION, PROTECTED};
use knative_operator_tests::Result;
use serde_json::{Value, json};

use super::attacker::Attacker;
use super::fleets::{EDITOR, Site, child, prod, settle};
use super::report::Outcome;
use crate::knative_fleet::PLACE;
use crate::support::{apply, confirm, gone};

/// What the attacker has.
const UNAPPROVED: &str = "a revision that nobody approved is on the cluster of the next stage";

/// Changes the stages of a fleet that waits for an approval.
async fn change_stages(site: &Site, replicas: i32, stages: &Value) -> Result<Outcome> {
    site.start_rollout(replicas).await?;
    let patch = json!({"spec": {"rollout": {"stages": stages}}}).to_string();
    let line = ["patch", "knativefleet", "prod", "-n", PLACE, "--type=merge", "-p", &patch];
    let attempt = Attacker::new(&site.hub, EDITOR).kubectl(&line, "").await?;
    settle(&site.hub, "prod").await?;
    let outcome = Outcome::of(site.has_reached_b(replicas).await?, UNAPPROVED, &attempt);
    site.finish_rollout(&prod(replicas)).await?;
    Ok(outcome)
}

/// The stage needs no approval any more.
pub async fn are_removed(site: &Site, replicas: i32) -> Result<Outcome> {
    let mut stages = prod(replicas)["spec"]["rollout"]["stages"].take();
    stages[1] = json!({"name": "prod"});
    change_stages(site, replicas, &stages).await
}

/// The first stage, which needs no approval, selects all clusters.
pub async fn are_avoided(site: &Site, replicas: i32) -> Result<Outcome> {
    let mut stages = prod(replicas)["spec"]["rollout"]["stages"].take();
    stages[0]["clusterSelector"] = json!({"matchLabels": {"env": "prod"}});
    change_stages(site, replicas, &stages).await
}

/// The annotations of the resource for `b` say that it has the new revision, so the operator
/// repairs its spec.
pub async fn are_annotated(site: &Site, replicas: i32) -> Result<Outcome> {
    site.start_rollout(replicas).await?;
    let of = |cluster: &'static str| child(&site.hub, Component::Serving, cluster);
    let (updated, other) = (of("a").await?.ok_or("no resource")?, of("b").await?.ok_or("no resource")?);
    let mut arguments = vec!["annotate", "knativeserving", "-n", PLACE, "--overwrite"];
    arguments.extend(other["metadata"]["name"].as_str());
    let annotations = [FLEET_REVISION, FLEET_CONTENT].map(|name| {
        let value = updated["metadata"]["annotations"][name].as_str().unwrap_or_default();
        format!("{name}={value}")
    });
    arguments.extend(annotations.iter().map(String::as_str));
    let attempt = Attacker::new(&site.hub, EDITOR).kubectl(&arguments, "").await?;
    site.settle_children().await?;
    let outcome = Outcome::of(site.has_reached_b(replicas).await?, UNAPPROVED, &attempt);
    site.finish_rollout(&prod(replicas)).await?;
    Ok(outcome)
}

/// The fleet is deleted, to be created again without its approvals.
pub async fn are_deleted(site: &Site) -> Result<Outcome> {
    confirm(&site.hub, PLACE, "prod").await?;
    let line = ["delete", "knativefleet", "prod", "-n", PLACE, "--wait=false"];
    let attempt = Attacker::new(&site.hub, EDITOR).kubectl(&line, "").await?;
    let fleet = site.hub.kubectl(&["get", "knativefleet", "prod", "-n", PLACE, "-o", "json"], "").await?;
    let fleet: Value = serde_json::from_str(&fleet)?;
    let is_deleted = !fleet["metadata"]["deletionTimestamp"].is_null();
    Ok(Outcome::of(is_deleted, "the fleet is being deleted", &attempt))
}

/// The resources of the fleet are deleted, which uninstalls what was approved.
pub async fn children_are_deleted(site: &Site) -> Result<Outcome> {
    let line = ["delete", "knativeserving", "-n", PLACE, "-l", "operator.knative.dev/fleet=prod", "--wait=false"];
    let attempt = Attacker::new(&site.hub, EDITOR).kubectl(&line, "").await?;
    let mut is_deleted = false;
    for cluster in ["a", "b"] {
        let child = child(&site.hub, Component::Serving, cluster).await?;
        is_deleted |= child.is_none_or(|child| !child["metadata"]["deletionTimestamp"].is_null());
    }
    Ok(Outcome::of(is_deleted, "Knative is uninstalled from an approved cluster", &attempt))
}

/// A resource of the fleet gets a finalizer and a protection, so that no rollout or removal ends.
pub async fn children_are_held(site: &Site) -> Result<Outcome> {
    let before = child(&site.hub, Component::Serving, "b").await?.ok_or("no resource")?;
    let name = before["metadata"]["name"].as_str().unwrap_or_default();
    let patch = |finalizers: &Value, protected: &Value| {
        json!({"metadata": {"finalizers": finalizers, "annotations": {PROTECTED: protected}}}).to_string()
    };
    let mut finalizers = before["metadata"]["finalizers"].clone();
    finalizers.as_array_mut().ok_or("no finalizers")?.push(json!("example.com/hold"));
    let arguments = ["patch", "knativeserving", "-n", PLACE, name, "--type=merge", "-p"];
    let (hold, restore) = (patch(&finalizers, &json!("true")), patch(&before["metadata"]["finalizers"], &Value::Null));
    let line = |patch| [&arguments[..], &[patch]].concat();
    let attempt = Attacker::new(&site.hub, EDITOR).kubectl(&line(hold.as_str()), "").await?;
    let after = child(&site.hub, Component::Serving, "b").await?.ok_or("no resource")?;
    let is_held = after["metadata"]["finalizers"] == finalizers;
    site.hub.kubectl(&line(restore.as_str()), "").await?;
    Ok(Outcome::of(is_held, "a resource of the fleet can't be deleted", &attempt))
}

/// The fleet gets an owner that doesn't exist, so that the garbage collector deletes it.
pub async fn are_collected(site: &Site) -> Result<Outcome> {
    let owner = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-0000-0000-000000000000"}]);
    let patch = json!({"metadata": {"ownerReferences": owner}}).to_string();
    let line = ["patch", "knativefleet", "prod", "-n", PLACE, "--type=merge", "-p", &patch];
    let attempt = Attacker::new(&site.hub, EDITOR).kubectl(&line, "").await?;
    let fleet = site.hub.kubectl(&["get", "knativefleet", "prod", "-n", PLACE, "-o", "json"], "").await?;
    let fleet: Value = serde_json::from_str(&fleet)?;
    let is_owned = !fleet["metadata"]["ownerReferences"].is_null();
    Ok(Outcome::of(is_owned, "the garbage collector deletes the fleet", &attempt))
}

/// An administrator deletes the fleet, and the editor creates it again with the revision that was
/// approved for the former one.
pub async fn outlive_fleet(site: &Site, replicas: i32) -> Result<Outcome> {
    let (hub, editor, fleet) = (&site.hub, Attacker::new(&site.hub, EDITOR), prod(replicas));
    site.start_rollout(replicas).await?;
    site.finish_rollout(&prod(replicas)).await?;
    confirm(hub, PLACE, "prod").await?;
    hub.object("knativefleet", PLACE, "prod").start_deletion().await?;
    gone(hub, &fleet).await?;
    let attempt = editor.apply(&fleet).await?;
    if attempt.is_err() {
        apply(hub, &fleet).await?;
    }
    site.stopped().await?;
    Ok(Outcome::of(site.has_reached_b(replicas).await?, UNAPPROVED, &attempt))
}
