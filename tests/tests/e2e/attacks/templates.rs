//! Content of a fleet that nobody permitted: an override that removes what an administrator set,
//! and forged revisions.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Event;
use knative_operator_fleet::revision::RevisionData;
use knative_operator_fleet::template::wanted;
use knative_operator_shared::api::fleet::KnativeFleetStatus;
use knative_operator_shared::api::{Component, KnativeFleetSpec};
use knative_operator_shared::label::{FLEET, FLEET_CONTENT, FLEET_REVISION};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::{Result, product, wait};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::attacker::{Attacker, Attempt};
use super::fleets::{EDITOR, HISTORIAN, Site, child, eventing, is_waiting, prod, settle};
use super::report::Outcome;
use super::settle::remove;
use crate::knative_fleet::{PLACE, has, status_of};
use crate::status::command;
use crate::support::{INSTALL, apply};

/// Images that the administrator chose.
const MIRROR: &str = "mirror.example/${NAME}:1";
/// Images of the attacker.
const FORGED: &str = "attacker.example/${NAME}:1";
/// A number after all others: a rollback takes the newest revision but the current one.
const NEWEST: i64 = 1_000_000;
/// Replicas and notes of two revisions whose digests begin with the same 40 bits.
const EQUAL: [(i32, &str); 2] = [(11, "612584"), (12, "1520503")];

/// Uid of the fleet `prod`.
async fn uid(hub: &Cluster) -> Result<String> {
    hub.kubectl(&["get", "knativefleet", "prod", "-n", PLACE, "-o", "jsonpath={.metadata.uid}"], "").await
}

/// The images of `deployment`.
fn images(deployment: &Deployment) -> Vec<&str> {
    let pod = deployment.spec.template.spec.iter();
    pod.flat_map(|pod| &pod.containers).filter_map(|container| container.image.as_deref()).collect()
}

/// Wanted, without permission to customize: Knative without registry and patches of the
/// administrator.
pub async fn lose_registry(site: &Site) -> Result<Outcome> {
    let hub = &site.hub;
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "eventing-controller"});
    let patches = json!([{"target": target, "patch": {"type": "merge", "content": "metadata: {labels: {checked: administrator}}"}}]);
    let spec = json!({"version": "1.1.0", "registry": {"default": MIRROR}, "patches": patches});
    let placement = json!({"clusterSelector": {"matchLabels": {"site": "a"}}, "namespaces": [product::FLEET]});
    let mirrored = eventing("mirrored", &placement, &spec);
    apply(hub, &mirrored).await?;
    let is_ready = |s: &KnativeFleetStatus| has(s, "Ready", "Ready") && s.updated == 1;
    status_of(hub, "mirrored", "Ready", is_ready).await?;
    // Not a merge patch, in which null is no value.
    let change = json!({"clusterSelector": {}, "eventing": {"spec": {"registry": null, "patches": null}}});
    let patch = json!([{"op": "add", "path": "/spec/overrides", "value": [change]}]).to_string();
    let line = ["patch", "knativefleet", "mirrored", "-n", PLACE, "--type=json", "-p", &patch];
    let attempt = Attacker::new(hub, EDITOR).kubectl(&line, "").await?;
    status_of(hub, "mirrored", "Ready", is_ready).await?;
    let deployments = Api::<Deployment>::namespaced(site.a.client(), Component::Eventing.canonical());
    let found = deployments.get("eventing-controller").await?;
    let is_mirrored = images(&found).iter().all(|image| image.starts_with("mirror.example/"));
    let is_there = !is_mirrored || !found.labels().contains_key("checked");
    remove(hub, &mirrored).await?;
    Ok(Outcome::of(is_there, "images and labels are not those of the administrator", &attempt))
}

/// The content of the revision of a fleet with `spec`.
fn revision_of(spec: &Value) -> Result<RevisionData> {
    Ok(RevisionData::of(&serde_json::from_value::<KnativeFleetSpec>(spec.clone())?))
}

/// The spec of `prod` with images of the attacker.
fn forged_spec(replicas: i32) -> Value {
    let mut spec = prod(replicas)["spec"].take();
    spec["serving"]["spec"]["registry"] = json!({"default": FORGED});
    spec
}

/// The revision `name` with `data`.
fn stored(name: &str, number: i64, data: &RevisionData) -> Value {
    json!({"apiVersion": "apps/v1", "kind": "ControllerRevision", "metadata": {"name": name, "namespace": PLACE, "labels": {FLEET: "prod"}},
        "revision": number, "data": data})
}

/// Whether the attacker's images are on `spoke`, called `cluster`.
async fn is_forged(site: &Site, cluster: &str, spoke: &Cluster) -> Result<bool> {
    let child = child(&site.hub, Component::Serving, cluster).await?;
    if child.is_none_or(|child| child["spec"]["registry"]["default"] != FORGED) {
        return Ok(false);
    }
    let deployments = Api::<Deployment>::namespaced(spoke.client(), Component::Serving.canonical());
    let is_forged = |deployment: Option<&Deployment>| {
        deployment.is_some_and(|d| images(d).iter().any(|image| image.starts_with("attacker.example/")))
    };
    wait::until(&deployments, "controller", INSTALL, "with the attacker's images", is_forged).await?;
    Ok(true)
}

/// Wanted: the content of a revision that exists before the operator stores it, or the new content
/// without approval.
pub async fn precede_rollout(site: &Site, replicas: i32) -> Result<Outcome> {
    let name = revision_of(&prod(replicas)["spec"])?.name("prod", &uid(&site.hub).await?);
    let forged = stored(&name, NEWEST, &revision_of(&forged_spec(replicas))?);
    let attempt = Attacker::new(&site.hub, HISTORIAN).apply(&forged).await?;
    site.set(&prod(replicas)).await?;
    // The operator doesn't roll out what has a name that is taken.
    let events = Api::<Event>::namespaced(site.hub.client(), PLACE);
    let is_stopped = |found: &[Event]| found.iter().any(|e| e.reason.as_deref() == Some("RevisionNotStored"));
    tokio::select! {
        waiting = status_of(&site.hub, "prod", "awaiting approval", is_waiting) => drop(waiting?),
        stopped = wait::until_all(&events, "", INSTALL, "stopped", is_stopped) => drop(stopped?),
    }
    let is_there = is_forged(site, "a", &site.a).await?
        || is_forged(site, "b", &site.b).await?
        || site.has_reached_b(replicas).await?;
    remove(&site.hub, &forged).await?;
    site.finish_rollout(&prod(replicas)).await?;
    Ok(Outcome::of(is_there, "the rollout has other content, or no approval", &attempt))
}

/// Wanted: the content of a forged revision, which the annotations of the resource for `b` name.
pub async fn are_annotated(site: &Site, replicas: i32) -> Result<Outcome> {
    let historian = Attacker::new(&site.hub, HISTORIAN);
    site.start_rollout(replicas).await?;
    let data = revision_of(&forged_spec(replicas))?;
    let name = data.name("prod", &uid(&site.hub).await?);
    let forged = stored(&name, 1, &data);
    let mut attempt = historian.apply(&forged).await?;
    if attempt.is_ok() {
        attempt = annotate(site, &historian, &name, &data).await?;
    }
    site.settle_children().await?;
    let is_there = is_forged(site, "b", &site.b).await?;
    site.finish_rollout(&prod(replicas)).await?;
    remove(&site.hub, &forged).await?;
    Ok(Outcome::of(is_there, "the operator has installed a forged revision", &attempt))
}

/// Makes the resource for `b` one of the revision `name`.
async fn annotate(site: &Site, attacker: &Attacker<'_>, name: &str, data: &RevisionData) -> Result<Attempt> {
    let child = child(&site.hub, Component::Serving, "b").await?.ok_or("no resource")?;
    let content = data.serving.as_ref().map(|template| wanted(template).content).unwrap_or_default();
    let (revision, content) = (format!("{FLEET_REVISION}={name}"), format!("{FLEET_CONTENT}={content:016x}"));
    let resource = child["metadata"]["name"].as_str().unwrap_or_default();
    let line = ["annotate", "knativeserving", resource, "-n", PLACE, "--overwrite", &revision, &content];
    attacker.kubectl(&line, "").await
}

/// Wanted: the content of a forged revision, to which an administrator rolls back. It may say that
/// the fleet is its controller.
pub async fn are_rolled_back_to(site: &Site, replicas: i32, is_owned: bool) -> Result<Outcome> {
    let hub = &site.hub;
    site.start_rollout(replicas).await?;
    site.finish_rollout(&prod(replicas)).await?;
    let data = revision_of(&forged_spec(replicas))?;
    let uid = uid(hub).await?;
    let mut forged = stored(&data.name("prod", &uid), NEWEST, &data);
    if is_owned {
        forged["metadata"]["ownerReferences"] = json!([{"apiVersion": "operator.knative.dev/v1alpha1",
            "kind": "KnativeFleet", "name": "prod", "uid": uid, "controller": true}]);
    }
    let attempt = Attacker::new(hub, HISTORIAN).apply(&forged).await?;
    let (_, output, problem) = command(&hub.kubeconfig(), &["fleet", "rollback", "prod", "-n", PLACE, "--yes"]).await?;
    eprintln!("{output}{problem}");
    settle(hub, "prod").await?;
    let is_there = is_forged(site, "a", &site.a).await?;
    site.finish_rollout(&prod(replicas + 1)).await?;
    remove(hub, &forged).await?;
    Ok(Outcome::of(is_there, "the rollback has installed a forged revision", &attempt))
}

/// Wanted: other content than what was approved, whose revision has the same name. An operator that
/// computed the content by that name before keeps it until it restarts.
pub async fn share_name(site: &mut Site) -> Result<Outcome> {
    let [approved, other] = EQUAL.map(|(replicas, note)| {
        let mut fleet = prod(replicas);
        fleet["spec"]["serving"]["metadata"] = json!({"annotations": {"example.com/note": note}});
        fleet
    });
    site.finish_rollout(&approved).await?;
    let patch = json!([{"op": "replace", "path": "/spec", "value": other["spec"]}]).to_string();
    let line = ["patch", "knativefleet", "prod", "-n", PLACE, "--type=json", "-p", &patch];
    let attempt = Attacker::new(&site.hub, EDITOR).kubectl(&line, "").await?;
    site.restart().await?;
    settle(&site.hub, "prod").await?;
    site.stopped().await?;
    let is_there = site.has_reached_b(EQUAL[1].0).await?;
    site.finish_rollout(&prod(EQUAL[1].0 + 1)).await?;
    Ok(Outcome::of(is_there, "content that nobody approved is on the cluster of the next stage", &attempt))
}
