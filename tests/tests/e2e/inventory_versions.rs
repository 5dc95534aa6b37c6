//! Versions of the Cluster Inventory API: operator and webhook follow the definitions on the hub,
//! without a restart.

use std::time::{Duration, Instant};

use k8s_openapi::api::events::v1::Event;
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::measure::Audit;
use knative_operator_tests::product::{self, FLEET, HUB_USER, Product};
use knative_operator_tests::{Result, releases, tools, wait};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::knative_fleet::{self, PLACE};
use crate::support::{
    apply, condition, has_condition, has_event, namespace, nothing_to_install, resource, run, status,
};

const OLD: &str = "v1alpha1";
const NEW: &str = "v1alpha2";
const WEBHOOK_USER: &str = "system:serviceaccount:knative-operator:operator-webhook";

/// The definition of `plural` that serves the versions `served`. No release of upstream has the new
/// version: it is made from the old one of v0.1.3 as upstream's pull request 65 describes it, which
/// goes on storing the old one and drops `credentialProviders` from the new one. Here, the old one
/// is deprecated, too, so that each request for it would cause a warning.
fn definition(plural: &str, served: &[&str]) -> Result<Value> {
    let file = std::fs::read_to_string(tools::control_plane(&format!("{plural}.yaml"))?)?;
    let mut definition =
        serde_saphyr::from_multiple::<Value>(&file)?.into_iter().next().ok_or("there is no definition")?;
    let mut old = definition["spec"]["versions"][0].clone();
    let mut new = old.clone();
    let fields = new.pointer_mut("/schema/openAPIV3Schema/properties/status/properties");
    if let Some(fields) = fields.and_then(Value::as_object_mut) {
        fields.remove("credentialProviders");
    }
    new["name"] = json!(NEW);
    (old["served"], new["served"]) = (json!(served.contains(&OLD)), json!(served.contains(&NEW)));
    (old["deprecated"], new["storage"]) = (json!(true), json!(false));
    definition["spec"]["versions"] = json!([old, new]);
    Ok(definition)
}

/// Sets the conditions of ClusterProfile `a` with `version`, once it is served.
async fn set_conditions(hub: &Cluster, version: &str, conditions: &Value) -> Result<()> {
    let gvk = GroupVersionKind::gvk("multicluster.x-k8s.io", version, "ClusterProfile");
    let kind = ApiResource::from_gvk_with_plural(&gvk, "clusterprofiles");
    let profiles = Api::<DynamicObject>::namespaced_with(hub.client(), FLEET, &kind);
    let (patch, started) = (json!({"status": {"conditions": conditions}}), Instant::now());
    // Polled: nothing reports when the API server serves another version.
    while let Err(error) = profiles.patch_status("a", &PatchParams::default(), &Patch::Merge(&patch)).await {
        assert!(started.elapsed() < wait::LIMIT, "{version}: {error}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    Ok(())
}

async fn set_health(hub: &Cluster, version: &str, health: &str) -> Result<()> {
    let condition = json!({"type": "ControlPlaneHealthy", "status": health, "reason": "Tests",
        "message": format!("{health} by {version}"), "lastTransitionTime": "2026-01-01T00:00:00Z"});
    set_conditions(hub, version, &json!([condition])).await
}

async fn resolved(hub: &Cluster, resource: &Value) -> Result<()> {
    let is_resolved = |s: &knative_operator_shared::api::KnativeStatus| {
        condition(s, "TargetClusterResolved").is_some_and(|c| c.status == "True")
    };
    status(hub, resource, wait::LIMIT, "resolved", is_resolved).await.map(drop)
}

/// That the cluster is resolved, with a message that begins with `note`, and without a reason.
async fn has_note(hub: &Cluster, resource: &Value, note: Option<&str>) -> Result<()> {
    let is_noted = |s: &knative_operator_shared::api::KnativeStatus| {
        condition(s, "TargetClusterResolved").is_some_and(|c| {
            let is_as_expected = match (note, &c.message) {
                (Some(note), Some(message)) => message.starts_with(note),
                (note, message) => note.is_none() && message.is_none(),
            };
            c.status == "True" && c.reason.is_none() && is_as_expected
        })
    };
    status(hub, resource, wait::LIMIT, "resolved with this note", is_noted).await.map(drop)
}

/// That the operator sees the health `False`, which was set with `version`.
async fn not_ready(hub: &Cluster, resource: &Value, version: &str) -> Result<()> {
    let part = format!("ControlPlaneHealthy=False: False by {version}");
    has_condition(hub, resource, "TargetClusterResolved", "ClusterProfileNotReady", &part).await
}

/// Waits until the webhook warns about the health of ClusterProfile `a`.
async fn warns(hub: &Cluster) -> Result<()> {
    if !hub.webhooks() {
        return Ok(());
    }
    let asking = resource(Component::Serving, "versions", "asking", Some("a"), nothing_to_install()).to_string();
    let started = Instant::now();
    // Polled: nothing reports what the webhook knows.
    loop {
        let (_, output) = hub.kubectl_output(&["create", "-f", "-", "--dry-run=server"], &asking).await;
        if output.contains("has no condition ControlPlaneHealthy=True") {
            return Ok(());
        }
        assert!(started.elapsed() < wait::LIMIT, "the webhook does not warn: {output}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// The requests of operator and webhook from now on.
fn audits(hub: &Cluster) -> Result<Vec<Audit>> {
    let users = if hub.webhooks() { vec![HUB_USER, WEBHOOK_USER] } else { vec![HUB_USER] };
    users.into_iter().map(|user| Audit::of(hub, user)).collect()
}

/// Checks that ClusterProfiles were read in the new version only, by processes that were started.
async fn read_new_only(hub: &Cluster, audits: &mut [Audit]) -> Result<()> {
    for audit in audits {
        let mut read = audit.take_all(&hub.client()).await?;
        read.retain(|request| request.target.starts_with("clusterprofiles."));
        // A process begins with a list. Before that, the former one may watch once more: the API
        // server may leave the watch of a version open that it serves no longer.
        read.drain(..read.iter().position(|request| request.verb == "list").unwrap_or(read.len()));
        assert!(read.iter().all(|request| request.version == NEW) && !read.is_empty(), "{read:#?}");
    }
    Ok(())
}

#[test]
fn served_version_is_followed() {
    run(async {
        let (hub, spoke) = tokio::try_join!(Cluster::hub("versions"), Cluster::spoke("versions-1"))?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let mut values = product::values(&[]);
        values["knative_operator"]["fleet"] = json!({"enabled": true});
        let mut product = Product::create(&hub, &releases, values, plugins.path()).await?;
        product::register(&hub, &spoke, "a").await?;
        namespace(&hub, "versions").await?;
        let asked = resource(Component::Eventing, "versions", "asked", Some("a"), nothing_to_install());
        apply(&hub, &asked).await?;
        resolved(&hub, &asked).await?;

        // The definition serves another version in place of the old one.
        hub.put(&definition("clusterprofiles", &[NEW])?).await?;
        set_health(&hub, NEW, "False").await?;
        not_ready(&hub, &asked, NEW).await?;
        warns(&hub).await?;
        // The profiles were never gone: that would have been reported before.
        has_event(&hub, "versions", "ClusterProfileNotReady", &format!("False by {NEW}")).await?;
        let events = Api::<Event>::namespaced(hub.client(), "versions").list(&ListParams::default()).await?;
        assert!(events.iter().all(|event| event.reason.as_deref() != Some("ClusterProfileNotFound")), "{events:#?}");

        // It serves both.
        hub.put(&definition("clusterprofiles", &[OLD, NEW])?).await?;
        set_health(&hub, NEW, "True").await?;
        resolved(&hub, &asked).await?;
        let mut of_both = audits(&hub)?;
        product.restart_operator(&hub, Signal::TERM).await?;
        if hub.webhooks() {
            product.start_webhook(&hub).await?;
        }
        set_health(&hub, NEW, "False").await?;
        not_ready(&hub, &asked, NEW).await?;
        warns(&hub).await?;
        read_new_only(&hub, &mut of_both).await?;

        // Its cluster manager says nothing about its health.
        set_conditions(&hub, NEW, &json!([])).await?;
        has_note(&hub, &asked, Some("ClusterProfile fleet-system/a has no condition ControlPlaneHealthy")).await?;

        // The former definition is back.
        hub.put(&definition("clusterprofiles", &[OLD])?).await?;
        set_health(&hub, OLD, "False").await?;
        not_ready(&hub, &asked, OLD).await?;
        set_health(&hub, OLD, "True").await?;
        has_note(&hub, &asked, None).await?;

        // A decision in the new version, without a label: its name chooses it.
        hub.put(&definition("placementdecisions", &[NEW])?).await?;
        wait::established(hub.client()).await?;
        let decision = json!({"apiVersion": format!("multicluster.x-k8s.io/{NEW}"), "kind": "PlacementDecision",
            "metadata": {"name": "chosen", "namespace": FLEET},
            "decisions": [{"clusterProfileRef": {"name": "a", "namespace": FLEET}}]});
        apply(&hub, &decision).await?;
        namespace(&hub, PLACE).await?;
        let mut fleet = knative_fleet::fleet(&json!({"version": "1.0.0", "ingress": {"kourier": {"enabled": true}}}));
        fleet["spec"]["placement"] = json!({"decision": {"name": "chosen", "key": "k", "namespace": FLEET}});
        if hub.webhooks() {
            let (is_admitted, output) = hub.kubectl_output(&["apply", "-f", "-"], &fleet.to_string()).await;
            assert!(!is_admitted && output.contains("spec.placement.decision: both key and name are set"), "{output}");
        }
        fleet["spec"]["placement"] = json!({"decision": {"name": "chosen", "namespace": FLEET}});
        apply(&hub, &fleet).await?;
        knative_fleet::status(&hub, "placed", |status| status.clusters == 1).await.map(drop)
    });
}
