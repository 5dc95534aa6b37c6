//! Stored values of a newer version, of each type: nothing is deleted, uninstalled, orphaned or
//! rolled out. The operator reports them, or keeps what it read last.
//!
//! The unit tests of the operator (`fleets::store::newer`) read all values that
//! [`knative_operator_tests::newer`] generates; these are some of them.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use knative_operator_shared::api::Component;
use knative_operator_shared::label::FLEET_REVISION;
use knative_operator_tests::direct::{get, send, set};
use knative_operator_tests::measure::Audit;
use knative_operator_tests::newer::{Change, Newer, newer, schema_of};
use knative_operator_tests::product::{self, SPOKE_USER};
use knative_operator_tests::{Result, releases};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::knative_fleet::{PLACE, approve_as_recorded, has, recorded, status};
use crate::newer_site::{LIMIT, MARKER, PROD, SINGLE, Site, Stored, awaits, marker, single};
use crate::reasons::{invalid, provider_file, set_provider_file};
use crate::support::{confirm, gone, has_condition, ready, run};

const ANCHOR: &str = "/api/v1/namespaces/knative-serving/configmaps/knativeserving-single-root-owner";
const INVENTORY: &str = "/data/inventory";
const OWNER: &str = "/metadata/annotations/operator.knative.dev~1owner";
const ON_DELETE: &str = "/metadata/annotations/operator.knative.dev~1on-delete";
const PROFILE: &str = "/apis/multicluster.x-k8s.io/v1alpha1/namespaces/fleet-system/clusterprofiles/a/status";

/// For each field of `part`: its first other type, all unknown values of enums, and the first
/// missing field.
fn sample(all: Vec<Newer>, part: &str) -> Vec<Newer> {
    let all: Vec<Newer> = all.into_iter().filter(|newer| newer.field.starts_with(part)).collect();
    let field = |newer: &Newer| newer.field[part.len()..].split('/').next().map(str::to_owned);
    let mut chosen = Vec::new();
    for group in all.chunk_by(|a, b| field(a) == field(b)) {
        let first = |change: Change| group.iter().position(|newer| newer.change == change);
        let firsts = [first(Change::Type), first(Change::Missing)];
        let is_chosen =
            |(index, newer): &(usize, &Newer)| newer.change == Change::Value || firsts.contains(&Some(*index));
        chosen.extend(group.iter().enumerate().filter(is_chosen).map(|(_, newer)| newer.clone()));
    }
    assert!(chosen.len() > 1, "nothing to change in {part}");
    chosen
}

/// A text with a JSON value of another type in each field.
fn texts(text: &str, within: &str) -> Result<Vec<Newer>> {
    let value: Value = serde_json::from_str(text)?;
    let mut all = newer(&value, &schema_of(&value, &Value::Null));
    all.retain(|newer| newer.change == Change::Type);
    Ok(sample(all, within))
}

/// The text at `field` of the anchor.
async fn anchored(site: &Site, field: &str) -> Result<String> {
    let anchor = get(&site.spokes[0], ANCHOR).await?;
    Ok(anchor.pointer(field).and_then(Value::as_str).ok_or("the anchor has no such field")?.to_owned())
}

#[test]
fn newer_values_change_nothing() {
    run(async {
        let (mut site, schema) = Site::start().await?;
        let site = &mut site;
        specs(site, &PROD, &schema["knativefleets"]).await?;
        specs(site, &SINGLE, &schema["knativeservings"]).await?;
        all_ready(site).await?;
        anchors(site).await?;
        profiles(site, &schema["clusterprofiles"]).await?;
        providers(site).await?;
        site.is_unchanged(&[], "everything is readable again").await?;
        let revision = approvals(site, &schema["knativefleetapprovals"]).await?;
        revisions(site, &revision, &schema["knativefleets"]).await?;
        site.has_uninstalled_nothing().await?;
        fleet_deletion(site, &schema["knativefleets"]).await?;
        deletion(site, &schema["knativeservings"]).await
    });
}

async fn all_ready(site: &Site) -> Result<()> {
    status(&site.hub, "Ready", |s| has(s, "Ready", "Ready") && s.updated == 2).await?;
    ready(&site.hub, &single(&releases::small())).await.map(drop)
}

/// Values in the spec of `object`, one after another.
async fn specs(site: &mut Site, object: &Stored, schema: &Value) -> Result<()> {
    let original = get(&site.hub, object.path).await?;
    for newer in sample(newer(&original, schema), "/spec/") {
        let what = newer.to_string();
        let stored = set(&site.hub, object.path, "/spec", newer.value.get("spec")).await?;
        object.is_reported(&site.hub, &stored, &what).await?;
        site.is_unchanged(&[], &what).await?;
    }
    set(&site.hub, object.path, "/spec", original.get("spec")).await.map(drop)
}

/// Values in the inventory and in the owner of the single resource.
async fn anchors(site: &mut Site) -> Result<()> {
    for (field, within, reason, part) in [
        (INVENTORY, "/0/", "Error", "cannot read the inventory"),
        (OWNER, "/", "Occupied", "an owner that this version can't read"),
    ] {
        let original = anchored(site, field).await?;
        for newer in texts(&original, within)?.into_iter().take(4) {
            let mut audit = Audit::of(&site.spokes[0], SPOKE_USER)?;
            set(&site.spokes[0], ANCHOR, field, Some(&json!(newer.value.to_string()))).await?;
            is_read(&mut audit).await?;
            has_condition(&site.hub, &single(&releases::small()), "InstallSucceeded", reason, part).await?;
            site.is_unchanged(&[], &format!("{newer} in {field}")).await?;
        }
        set(&site.spokes[0], ANCHOR, field, Some(&json!(original))).await?;
        all_ready(site).await?;
    }
    Ok(())
}

/// Waits until the operator reads the anchor, by the audit log of its cluster.
async fn is_read(audit: &mut Audit) -> Result<()> {
    let (started, name) = (Instant::now(), ANCHOR.rsplit('/').next().unwrap_or_default());
    // Polled: the log is a file.
    while !audit.take()?.iter().any(|request| request.verb == "get" && request.target.ends_with(name)) {
        assert!(started.elapsed() < LIMIT, "{name} was not read again");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Values in the status of a ClusterProfile. Those that can't be read are not reported; the same
/// watch reports another ClusterProfile after each of them.
async fn profiles(site: &mut Site, schema: &Value) -> Result<()> {
    let (original, access) = (get(&site.hub, PROFILE).await?, product::access(&site.spokes[0], "a"));
    for (number, newer) in sample(newer(&original, schema), "/status/").into_iter().enumerate() {
        set(&site.hub, PROFILE, "/status", newer.value.get("status")).await?;
        let (seen, reason) = (format!("Seen{number}"), "ClusterProfileNotReady");
        product::status(&site.hub, "marker", &seen, &access).await?;
        let part = format!("set to {seen} by a test");
        has_condition(&site.hub, &marker(), "TargetClusterResolved", reason, &part).await?;
        site.is_unchanged(&[], &newer.to_string()).await?;
    }
    set(&site.hub, PROFILE, "/status", original.get("status")).await?;
    all_ready(site).await
}

/// A text in the provider file, in place of a list or an object.
async fn providers(site: &mut Site) -> Result<()> {
    let original = provider_file(&site.hub).await?;
    let value: Value = serde_json::from_str(&original)?;
    let mut all = newer(&value, &schema_of(&value, &Value::Null)).into_iter();
    let is_text = |newer: &Newer| newer.value.pointer(&newer.field) == Some(&json!("newer"));
    let newer = all.find(is_text).ok_or("nothing to change")?;
    set_provider_file(&site.hub, &newer.value.to_string()).await?;
    invalid(&site.product).await?;
    site.is_unchanged(&[], &format!("{newer} in the provider file")).await?;
    set_provider_file(&site.hub, &original).await
}

/// Values of approvals approve nothing. Returns the revision that is rolled out then.
async fn approvals(site: &mut Site, schema: &Value) -> Result<String> {
    // It changes the resources of the fleet, and no object of an installation.
    set(&site.hub, PROD.path, "/spec/eventing/metadata/labels/round", Some(&json!("2"))).await?;
    let waiting = status(&site.hub, "awaiting approval", |s| awaits(s, "canary")).await?;
    let revision = waiting.update_revision.unwrap_or_default();
    let mut value = json!({"spec": recorded(&site.hub).await?});
    for (field, text) in
        [("fleet", "prod"), ("revision", revision.as_str()), ("stage", "prod"), ("username", "somebody")]
    {
        value["spec"][field] = json!(text);
    }
    let path = format!("/apis/operator.knative.dev/v1alpha1/namespaces/{PLACE}/knativefleetapprovals");
    for (number, newer) in sample(newer(&value, schema), "/spec/").into_iter().enumerate() {
        let approval = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleetApproval",
            "metadata": {"name": format!("newer-{number}")}, "spec": newer.value["spec"]});
        send(&site.hub, "POST", &path, &approval).await?;
    }
    // The same watch reports this one after them.
    approve_as_recorded(&site.hub, &revision, "canary").await?;
    status(&site.hub, "awaiting the next approval", |s| awaits(s, "prod") && s.updated == 1).await?;
    site.is_unchanged(&["prod-a-", "controllerrevisions."], "approvals").await?;
    approve_as_recorded(&site.hub, &revision, "prod").await?;
    all_ready(site).await?;
    site.expect_this().await?;
    Ok(revision)
}

/// A rollout fails after the `revision` before it was replaced by one of a newer version. The fleet
/// stops, and names the field; the cluster keeps what it has until the revision is readable.
async fn revisions(site: &mut Site, revision: &str, schema: &Value) -> Result<()> {
    const DEADLINE: &str = "/spec/rollout/stages/0/progressDeadlineSeconds";
    const MANIFESTS: &str = "/spec/eventing/spec/additionalManifests";
    set(&site.hub, PROD.path, MANIFESTS, Some(&json!([{"URL": "none/there.yaml"}]))).await?;
    let waiting = status(&site.hub, "awaiting approval", |s| awaits(s, "canary")).await?;
    let failing = waiting.update_revision.unwrap_or_default();
    let folder = format!("/apis/apps/v1/namespaces/{PLACE}/controllerrevisions");
    let original = get(&site.hub, &format!("{folder}/{revision}")).await?;
    let schema = json!({"type": "object", "properties": {"data": schema["properties"]["spec"]}});
    let mut all = newer(&original, &schema).into_iter();
    let newer = all.find(|newer| newer.change == Change::Value).ok_or("no enum")?;
    approve_as_recorded(&site.hub, &failing, "canary").await?;
    site.has_revision("prod-a-", &failing).await?;
    replace(site, &folder, &newer.value).await?;
    let stopped = status(&site.hub, "stopped", |s| has(s, "Progressing", "ClustersUnknown")).await?;
    let mut messages = stopped.conditions.iter().filter_map(|condition| condition.message.as_deref());
    assert!(messages.any(|message| message.contains(&format!("{revision} of this fleet can't be read: data"))));
    set(&site.hub, PROD.path, DEADLINE, Some(&json!(4))).await?;
    site.is_unchanged(&["prod-a-", "controllerrevisions."], &newer.to_string()).await?;
    assert_eq!(site.child("prod-a-").await?.annotations().get(FLEET_REVISION), Some(&failing), "{newer}");

    replace(site, &folder, &original).await?;
    site.has_revision("prod-a-", revision).await?;
    set(&site.hub, PROD.path, DEADLINE, Some(&json!(100))).await?;
    set(&site.hub, PROD.path, MANIFESTS, None).await?;
    all_ready(site).await?;
    site.expect_this().await
}

/// Replaces the revision with the name of `object`, whose data is immutable.
async fn replace(site: &Site, folder: &str, object: &Value) -> Result<()> {
    let meta = &object["metadata"];
    let path = format!("{folder}/{}", meta["name"].as_str().unwrap_or_default());
    send(&site.hub, "DELETE", &path, &Value::Null).await?;
    let mut again = object.clone();
    again["metadata"] =
        json!({"name": meta["name"], "labels": meta["labels"], "ownerReferences": meta["ownerReferences"]});
    send(&site.hub, "POST", folder, &again).await.map(drop)
}

/// A fleet with a removal of another type is deleted; `owners` has one with an unknown policy.
async fn fleet_deletion(site: &mut Site, schema: &Value) -> Result<()> {
    const REMOVAL: &str = "/spec/removal";
    let original = get(&site.hub, PROD.path).await?;
    let newer = newer(&original, schema).into_iter().find(|newer| newer.field == REMOVAL).ok_or("no removal")?;
    set(&site.hub, PROD.path, REMOVAL, newer.value.pointer(REMOVAL)).await?;
    confirm(&site.hub, PLACE, "prod").await?;
    site.hub.object("knativefleet", PLACE, "prod").start_deletion().await?;
    let is_kept = |status: &Value| status["conditions"].to_string().contains("nothing is deleted");
    PROD.until(&site.hub, "left as it is", is_kept).await?;
    site.is_unchanged(&[], &newer.to_string()).await?;
    site.has_uninstalled_nothing().await?;
    set(&site.hub, PROD.path, REMOVAL, original.pointer(REMOVAL)).await?;
    let fleet = json!({"apiVersion": original["apiVersion"], "kind": original["kind"], "metadata": {"name": "prod", "namespace": PLACE}});
    gone(&site.hub, &fleet).await?;
    site.expect_this().await
}

/// The single resource is deleted while its cluster, then its owner, then its inventory, then what
/// its deletion does can't be read.
async fn deletion(site: &mut Site, schema: &Value) -> Result<()> {
    const TARGET: &str = "/spec/clusterProfileRef";
    let (resource, original) = (single(&releases::small()), get(&site.hub, SINGLE.path).await?);
    let (owner, inventory) = (anchored(site, OWNER).await?, anchored(site, INVENTORY).await?);
    let newer = newer(&original, schema).into_iter().find(|newer| newer.field == TARGET).ok_or("no target")?;
    set(&site.hub, SINGLE.path, TARGET, newer.value.pointer(TARGET)).await?;
    site.hub.object("knativeserving", PLACE, "single").start_deletion().await?;
    let part = "doesn't know from which cluster to uninstall";
    has_condition(&site.hub, &resource, "InstallSucceeded", "Unreadable", part).await?;
    site.is_unchanged(&[], &newer.to_string()).await?;

    let other =
        |text: &str, within: &str| texts(text, within).map(|mut all| json!(all.swap_remove(0).value.to_string()));
    set(&site.spokes[0], ANCHOR, OWNER, Some(&other(&owner, "/")?)).await?;
    set(&site.hub, SINGLE.path, TARGET, original.pointer(TARGET)).await?;
    has_condition(&site.hub, &resource, "InstallSucceeded", "Error", "can't read the owner").await?;
    site.is_unchanged(&[], "the owner").await?;

    set(&site.spokes[0], ANCHOR, INVENTORY, Some(&other(&inventory, "/0/")?)).await?;
    set(&site.spokes[0], ANCHOR, OWNER, Some(&json!(owner))).await?;
    has_condition(&site.hub, &resource, "InstallSucceeded", "Error", "cannot read the inventory").await?;
    site.is_unchanged(&[], "the inventory").await?;

    set(&site.hub, SINGLE.path, ON_DELETE, Some(&json!("newer"))).await?;
    let marked = set(&site.hub, MARKER.path, "/spec/config", Some(&json!({}))).await?;
    let is_seen = |status: &Value| status["observedGeneration"] == marked["metadata"]["generation"];
    MARKER.until(&site.hub, "observed", is_seen).await?;
    set(&site.spokes[0], ANCHOR, INVENTORY, Some(&json!(inventory))).await?;
    has_condition(&site.hub, &resource, "InstallSucceeded", "Error", "operator.knative.dev/on-delete").await?;
    site.is_unchanged(&[], "what the deletion does").await?;
    site.has_uninstalled_nothing().await?;

    set(&site.hub, SINGLE.path, ON_DELETE, None).await?;
    gone(&site.hub, &resource).await?;
    let namespaces = Api::<Namespace>::all(site.spokes[0].client());
    assert!(namespaces.get_opt(Component::Serving.canonical()).await?.is_none(), "it is not uninstalled");
    Ok(())
}
