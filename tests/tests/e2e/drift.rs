//! Drift of installed objects is repaired, kind by kind; additions of others stay; contended
//! objects are reported and cost few writes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use k8s_openapi::api::core::v1::{ConfigMap, Event};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::measure::Audit;
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, product, wait};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::support::{
    apply, delete, eventing, fleet, forbid, has_condition, jobs_done, namespace, nothing_left, ready, run, serving,
};

/// Time limit of a repair: 2 s are expected, the rest is for a loaded machine. Less than the
/// back-off of a contended object.
const REPAIR: Duration = Duration::from_secs(45);

/// Time after which the API server needs a push to clean up after a definition.
const STUCK: Duration = Duration::from_secs(20);
/// Time limit for the API server to clean up after definitions.
const CLEANED: Duration = Duration::from_secs(120);

/// Objects of each kind that are deleted, unless `DRIFT` is set: then, all are.
const DELETED: usize = 1;

/// The anchors with the inventories.
const ANCHORS: [(&str, &str); 2] =
    [("knative-serving", "knativeserving-ks-root-owner"), ("knative-eventing", "knativeeventing-ke-root-owner")];

/// An installed object.
struct Installed {
    api: Api<DynamicObject>,
    name: String,
}

/// The objects in the inventories of both components, by kind.
async fn installed(client: &Client) -> Result<BTreeMap<String, Vec<Installed>>> {
    let mut kinds: BTreeMap<String, Vec<Installed>> = BTreeMap::new();
    for (place, anchor) in ANCHORS {
        let anchor = Api::<ConfigMap>::namespaced(client.clone(), place).get(anchor).await?;
        let rows: Vec<Value> = serde_json::from_str(&anchor.data.unwrap_or_default()["inventory"])?;
        for row in rows {
            let text = |key: &str| row[key].as_str().unwrap_or_default();
            let gvk = GroupVersionKind::gvk(text("g"), text("v"), text("k"));
            let resource = match kube::discovery::pinned_kind(client, &gvk).await {
                Ok((resource, _)) => resource,
                Err(_) => ApiResource::from_gvk(&gvk),
            };
            let api = match text("ns") {
                "" => Api::all_with(client.clone(), &resource),
                place => Api::namespaced_with(client.clone(), place, &resource),
            };
            kinds.entry(gvk.kind).or_default().push(Installed { api, name: text("n").to_owned() });
        }
    }
    Ok(kinds)
}

/// A field of the operator besides the labels, by kind, and another value for it.
fn edits(kind: &str, live: &DynamicObject) -> Option<Value> {
    Some(match kind {
        "ConfigMap" => json!({"data": {key_of(&live.data["data"])?: "edited"}}),
        "Deployment" | "StatefulSet" => {
            let container = &live.data["spec"]["template"]["spec"]["containers"][0]["name"];
            json!({"spec": {"template": {"spec": {"containers": [{"name": container, "image": "registry.example/edited:1"}]}}}})
        }
        "Service" => json!({"spec": {"selector": {key_of(&live.data["spec"]["selector"])?: "edited"}}}),
        "ClusterRole" if live.data.get("aggregationRule").is_some() => return None,
        "ClusterRole" | "Role" => json!({"rules": []}),
        "ClusterRoleBinding" | "RoleBinding" => json!({"subjects": []}),
        "HorizontalPodAutoscaler" => json!({"spec": {"maxReplicas": 97}}),
        "PodDisruptionBudget" => json!({"spec": {"minAvailable": "1%"}}),
        // Only fields in the release are the operator's.
        "CustomResourceDefinition" if live.data["spec"]["names"]["categories"].is_null() => return None,
        "CustomResourceDefinition" => json!({"spec": {"names": {"categories": ["edited"]}}}),
        "Image" if live.data["spec"]["image"].is_null() => json!({"spec": {"size": 2}}),
        "Image" => json!({"spec": {"image": "registry.example/edited:1"}}),
        "ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration" => {
            json!({"webhooks": [{"name": live.data["webhooks"][0]["name"], "sideEffects": "NoneOnDryRun"}]})
        }
        _ => return None,
    })
}

fn key_of(map: &Value) -> Option<String> {
    map.as_object()?.keys().next().cloned()
}

#[test]
fn each_installed_object_is_recreated_and_repaired() {
    run(async {
        let fleet = fleet().await?;
        let (hub, spoke) = (&fleet.hub, Cluster::spoke("drift").await?);
        product::register(hub, &spoke, "drift").await?;
        let (before, client) = (objects(&spoke.client()).await?, spoke.client());
        namespace(hub, "drift").await?;
        let resources = [
            serving("drift", "ks", Some("drift"), &fleet.releases),
            eventing("drift", "ke", Some("drift"), &fleet.releases),
        ];
        for resource in &resources {
            apply(hub, resource).await?;
        }
        for resource in &resources {
            ready(hub, resource).await?;
        }
        for (place, anchor) in ANCHORS {
            jobs_done(&spoke, place, anchor).await?;
        }
        quiet(hub, &spoke, &resources[0], fleet.releases.real).await?;
        let kinds = installed(&client).await?;
        assert!(kinds.len() > 12, "{:?}", kinds.keys());

        for (kind, all) in kinds.iter().filter(|(kind, _)| *kind != "Job") {
            let slowest =
                try_join_all(all.iter().map(|one| edited(kind, one))).await.map_err(|e| format!("{kind}: {e}"))?;
            eprintln!("{} {kind}: edited and repaired within {:.2?}", all.len(), slowest.iter().max().unwrap());
        }
        // A definition takes its objects with it: they come back after it.
        let most = if std::env::var_os("DRIFT").is_some() { usize::MAX } else { DELETED };
        for (kind, all) in kinds.iter().filter(|(kind, _)| *kind != "Job") {
            let slowest = try_join_all(all.iter().take(most).map(deleted)).await.map_err(|e| format!("{kind}: {e}"))?;
            eprintln!("{} {kind}: deleted and back within {:.2?}", slowest.len(), slowest.iter().max().unwrap());
        }
        redefined(hub, &spoke, &kinds, &resources[0]).await?;
        for resource in &resources {
            ready(hub, resource).await?;
        }

        contend(hub, &spoke).await?;
        for resource in &resources {
            delete(hub, resource).await?;
        }
        nothing_left(&spoke, &before).await
    });
}

/// An idle operator sends no requests, also after a forced reconcile, or when Knative's own webhook
/// has written its rules; a key that is added to the spec is one write.
async fn quiet(hub: &Cluster, spoke: &Cluster, serving: &Value, real: bool) -> Result<()> {
    let mut audit = Audit::of(spoke, product::SPOKE_USER)?;
    for kind in ["knativeserving/ks", "knativeeventing/ke"] {
        hub.kubectl(&["annotate", "--overwrite", kind, "-n", "drift", "reconcile.knative.dev/trigger=now"], "").await?;
    }
    let name = if real { "webhook.serving.knative.dev" } else { "validation.serving.example.dev" };
    let kind = if real { "MutatingWebhookConfiguration" } else { "ValidatingWebhookConfiguration" };
    let gvk = GroupVersionKind::gvk("admissionregistration.k8s.io", "v1", kind);
    let configurations: Api<DynamicObject> = Api::all_with(spoke.client(), &ApiResource::from_gvk(&gvk));
    let rules = json!([{"apiGroups": ["serving.knative.dev"], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["services"]}]);
    let theirs = json!({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "webhooks": [{"name": name, "rules": rules}]});
    configurations.patch(name, &PatchParams::default(), &Patch::Strategic(theirs)).await?;
    tokio::time::sleep(Duration::from_secs(3)).await; // nothing is waited for: it is counted what happens
    let asked: Vec<_> = audit.take()?.into_iter().filter(|r| r.verb != "watch").collect();
    assert!(asked.is_empty(), "{asked:#?}");
    assert_eq!(configurations.get(name).await?.data["webhooks"][0]["rules"][0]["operations"], json!(["CREATE"]));

    let mut changed = serving.clone();
    changed["spec"]["config"] = json!({"network": {"added": "yes"}});
    apply(hub, &changed).await?;
    let maps = Api::<ConfigMap>::namespaced(spoke.client(), "knative-serving");
    let there = |m: Option<&ConfigMap>| m.and_then(|m| m.data.as_ref()).is_some_and(|d| d.contains_key("added"));
    wait::until(&maps, "config-network", REPAIR, "changed", there).await?;
    tokio::time::sleep(Duration::from_secs(2)).await; // nothing is waited for: it is counted what happens
    let asked: Vec<_> = audit.take_all(&spoke.client()).await?.into_iter().filter(|r| r.verb != "watch").collect();
    assert!(
        matches!(asked.as_slice(), [one] if one.verb == "patch" && one.target.contains("config-network")),
        "{asked:#?}"
    );
    Ok(())
}

/// Edits `one` and adds to it; returns the time until the edit is repaired.
async fn edited(kind: &str, one: &Installed) -> Result<Duration> {
    // Objects whose definition was deleted a moment ago come back after it.
    wait::until(&one.api, &one.name, REPAIR, "there", |o| o.is_some()).await?;
    let live = one.api.get(&one.name).await?;
    let mut edit = json!({
        "apiVersion": live.types.as_ref().map(|t| t.api_version.clone()), "kind": kind,
        "metadata": {"labels": {"app.kubernetes.io/name": "stolen"}, "annotations": {"example.com/extra": "mine"}},
    });
    if let Some(fields) = edits(kind, &live) {
        edit.as_object_mut().unwrap().extend(fields.as_object().cloned().unwrap_or_default());
    }
    // Fields with merge keys are edited by strategic merge if the API server knows the kind.
    let patch = match kind {
        "Image" | "Certificate" | "CustomResourceDefinition" => Patch::Merge(&edit),
        _ => Patch::Strategic(&edit),
    };
    let started = Instant::now();
    one.api.patch(&one.name, &PatchParams::default(), &patch).await?;
    // As before, apart from the addition. The control plane writes the rules of an aggregate: they
    // follow the roles that are edited next to it.
    let aggregate = live.data.get("aggregationRule").is_some();
    let same = |now: &DynamicObject| {
        let part = |o: &DynamicObject, key: &str| o.data[key].clone();
        let skipped = |key: &str| kind == "CustomResourceDefinition" || (aggregate && key == "rules");
        ["spec", "data", "rules", "subjects"].iter().all(|key| part(now, key) == part(&live, key) || skipped(key))
            && part(now, "spec")["names"]["categories"] == part(&live, "spec")["names"]["categories"]
            && side_effects(now) == side_effects(&live)
            && now.labels() == live.labels()
    };
    let right = wait::until(&one.api, &one.name, REPAIR, "repaired", |o| o.is_some_and(same)).await?;
    let took = started.elapsed();
    let extra = right.and_then(|o| o.annotations().get("example.com/extra").cloned());
    assert_eq!(extra.as_deref(), Some("mine"), "{kind} {}: an added field is gone", one.name);
    Ok(took)
}

fn side_effects(object: &DynamicObject) -> BTreeSet<String> {
    object.data["webhooks"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|w| format!("{} {}", w["name"], w["sideEffects"]))
        .collect()
}

/// Deletes `one`; returns the time until another exists. A definition is gone when the API server
/// has cleaned up after it.
async fn deleted(one: &Installed) -> Result<Duration> {
    let uid = one.api.get(&one.name).await?.uid();
    one.api.delete(&one.name, &DeleteParams::background()).await?;
    let is_gone = |o: Option<&DynamicObject>| o.is_none_or(|o| o.uid() != uid);
    if wait::until(&one.api, &one.name, STUCK, "gone", is_gone).await.is_err() {
        // The API server tries the deletion of a definition again after up to 17 minutes, or after
        // a change: its storage may have been just in construction.
        let touch = json!({"metadata": {"annotations": {"example.com/touched": "yes"}}});
        let _ = one.api.patch(&one.name, &PatchParams::default(), &Patch::Merge(&touch)).await;
        wait::until(&one.api, &one.name, CLEANED, "gone", is_gone).await?;
    }
    let gone = Instant::now();
    wait::until(&one.api, &one.name, REPAIR, "back", |o| o.is_some_and(|o| o.uid() != uid)).await?;
    Ok(gone.elapsed())
}

/// Deletes a definition, forbids its creation for a while, and deletes its object as soon as that
/// is back.
async fn redefined(
    hub: &Cluster,
    spoke: &Cluster,
    kinds: &BTreeMap<String, Vec<Installed>>,
    serving: &Value,
) -> Result<()> {
    let name = "images.caching.internal.knative.dev";
    let definition =
        kinds["CustomResourceDefinition"].iter().find(|one| one.name == name).ok_or("no such definition")?;
    let image = &kinds["Image"][0];
    let (before, mut example) = (image.api.get(&image.name).await?.uid(), definition.api.get(name).await?);
    example.metadata.managed_fields = None;
    forbid(spoke, "no-images", "customresourcedefinitions", &serde_json::to_value(&example)?).await?;
    definition.api.delete(name, &DeleteParams::background()).await?;
    let refused = format!("failed to apply CustomResourceDefinition {name}: ");
    has_condition(hub, serving, "InstallSucceeded", "Error", &refused).await?;
    tokio::time::sleep(Duration::from_secs(2)).await; // so that the clients that list images retry less often
    for kind in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
        spoke.object(kind, "", "no-images").delete().await?;
    }
    wait::until(&image.api, &image.name, REPAIR, "back", |o| o.is_some_and(|o| o.uid() != before)).await?;
    let took = deleted(image).await.map_err(|e| format!("right after its definition: {e}"))?;
    eprintln!("1 Image: deleted when it was just back with its definition, and back again within {took:.2?}");
    Ok(())
}

/// A controller that reverts each repair immediately.
async fn contend(hub: &Cluster, spoke: &Cluster) -> Result<()> {
    let maps = Api::<ConfigMap>::namespaced(spoke.client(), "knative-serving");
    let name = "config-network";
    let key = maps.get(name).await?.data.unwrap_or_default().keys().next().cloned().unwrap();
    let hostile = json!({"data": {key.clone(): "hostile"}});
    let manager = PatchParams { field_manager: Some("hostile-controller".to_owned()), ..PatchParams::default() };
    let (mut audit, started) = (Audit::of(spoke, product::SPOKE_USER)?, Instant::now());
    let fight = async {
        loop {
            maps.patch(name, &manager, &Patch::Merge(&hostile)).await?;
            let repaired = |m: Option<&ConfigMap>| {
                m.and_then(|m| m.data.as_ref()).is_some_and(|d| d.get(&key).is_some_and(|v| v != "hostile"))
            };
            wait::until(&maps, name, Duration::from_secs(600), "repaired", repaired).await?;
        }
    };
    let reported = async {
        let events = Api::<Event>::namespaced(hub.client(), "drift");
        let named = |e: &Event| {
            let message = e.message.as_deref().unwrap_or_default();
            e.reason.as_deref() == Some("DriftFight")
                && message.contains("knative-serving/config-network")
                && message.contains("hostile-controller")
        };
        wait::until_all(&events, "", wait::LIMIT, "DriftFight with object and manager", |all| all.iter().any(named))
            .await
    };
    let fight: std::pin::Pin<Box<dyn Future<Output = Result<()>>>> = Box::pin(fight);
    let mut fight = fight;
    tokio::select! {
        ended = &mut fight => return ended,
        reported = reported => drop(reported?),
    }
    // From then on the operator backs off for the rest of the minute.
    let _ = tokio::time::timeout(Duration::from_secs(5), &mut fight).await;
    let writes = audit.take_all(&spoke.client()).await?;
    let writes = writes.into_iter().filter(|r| r.writes() && r.target.contains(name)).count();
    // Five a minute; on a busy machine, the fight may last for more than one.
    let most = 6 * (1 + started.elapsed().as_secs() / 60);
    assert!(writes >= 1 && writes as u64 <= most, "{writes} writes in a fight, {most} are permitted");
    let listed = Api::<Event>::namespaced(hub.client(), "drift").list(&ListParams::default()).await?;
    let warnings = listed.iter().filter(|e| e.reason.as_deref() == Some("DriftFight")).count();
    assert_eq!(warnings, 1);
    Ok(())
}
