//! A hub whose objects are restored from a backup: they get other uids, and the resources of a
//! fleet name a fleet that does not exist, so the garbage collector deletes them.

use k8s_openapi::api::events::v1::Event;
use knative_operator_shared::api::{Component, KnativeServing};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::{Result, releases, wait};
use kube::Api;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::knative_fleet::{PLACE, fleet, has, status, two_spokes};
use crate::owners::state;
use crate::support::{INSTALL, apply, gone, run};

/// Kinds of the backup, owners first.
const KINDS: [&str; 2] = ["knativefleets", "knativeservings"];
/// The webhook's configurations, which are restored last.
const WEBHOOKS: [&str; 2] = [
    "validatingwebhookconfiguration/validation.operator.knative.dev",
    "mutatingwebhookconfiguration/defaulting.operator.knative.dev",
];

/// The objects of the fleet's namespace, as a backup has them: with references to their owners.
async fn backup(hub: &Cluster) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for kind in KINDS {
        let list = hub.kubectl(&["get", kind, "-n", PLACE, "-o", "json"], "").await?;
        let mut list: Value = serde_json::from_str(&list)?;
        for object in list["items"].as_array_mut().into_iter().flatten() {
            let meta = object["metadata"].as_object_mut().ok_or("no metadata")?;
            for field in ["uid", "resourceVersion", "creationTimestamp", "generation", "managedFields"] {
                meta.remove(field);
            }
            object.as_object_mut().ok_or("no object")?.remove("status");
            all.push(object.take());
        }
    }
    Ok(all)
}

/// Removes all objects of the fleet's namespace, as if their etcd were new.
async fn empty(hub: &Cluster) -> Result<()> {
    for kind in KINDS {
        let names = hub.kubectl(&["get", kind, "-n", PLACE, "-o", "name"], "").await?;
        for name in names.lines() {
            hub.kubectl(&["delete", name, "-n", PLACE, "--wait=false", "--cascade=orphan"], "").await?;
            let bare = r#"{"metadata":{"finalizers":null}}"#;
            hub.kubectl(&["patch", name, "-n", PLACE, "--type=merge", "-p", bare], "").await?;
        }
    }
    hub.delete_all("controllerrevisions", PLACE).await
}

#[test]
fn restored_fleet_uninstalls_nothing() {
    run(async {
        let (hub, [a, b], mut product, _plugins) = two_spokes(&releases::small(), "restored-fleet").await?;
        let mut object = fleet(&json!({"version": "1.0.0", "ingress": {"kourier": {"enabled": true}}}));
        object["spec"]["rollout"] = json!({"stages": [{"name": "all", "maxConcurrent": 2}]});
        apply(&hub, &object).await?;
        status(&hub, "Ready", |s| has(s, "Ready", "Ready") && s.updated == 2).await?;
        let place = Component::Serving.canonical();
        let before = [state(&a, place).await?, state(&b, place).await?];
        let backup = backup(&hub).await?;
        assert_eq!(backup.len(), 3);
        product.stop_operator(Signal::TERM)?;
        hub.kubectl(&[&["delete"], &WEBHOOKS[..]].concat(), "").await?;
        empty(&hub).await?;
        gone(&hub, &object).await?;

        let children: Vec<_> = backup.iter().filter(|object| object["kind"] == "KnativeServing").collect();
        for object in &backup {
            hub.kubectl(&["create", "-f", "-"], &object.to_string()).await?;
        }
        // Their fleet has another uid: the garbage collector deletes them.
        let servings: Api<KnativeServing> = Api::namespaced(hub.client(), PLACE);
        for child in &children {
            let name = child["metadata"]["name"].as_str().unwrap_or_default();
            let is_deleted = |serving: Option<&KnativeServing>| {
                serving.is_some_and(|serving| serving.metadata.deletion_timestamp.is_some())
            };
            wait::until(&servings, name, INSTALL, "deleted by the garbage collector", is_deleted).await?;
        }
        product.start_operator(&hub).await?;
        let events: Api<Event> = Api::namespaced(hub.client(), PLACE);
        let says = |event: &Event| {
            let note = event.note.as_deref().unwrap_or_default();
            event.reason.as_deref() == Some("Orphaned") && note.contains("KnativeFleet prod with uid")
        };
        let both = |all: &[Event]| all.iter().filter(|event| says(event)).count() == 2;
        wait::until_all(&events, "", INSTALL, "left where they are", both).await?;
        // The fleet takes the installations up.
        status(&hub, "Ready again", |s| has(s, "Ready", "Ready") && s.updated == 2).await?;
        assert_eq!([state(&a, place).await?, state(&b, place).await?], before);
        Ok(())
    });
}
