//! A hub whose objects are restored from a backup: they get other uids, and the resources of a
//! fleet name a fleet that does not exist, so the garbage collector deletes them.

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::api::events::v1::Event;
use knative_operator_shared::api::{Component, KnativeFleetStatus, KnativeServing};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::{Result, releases, wait};
use kube::Api;
use kube::api::DeleteParams;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::knative_fleet::{PLACE, approve, approve_as_recorded, fleet, has, status, two_spokes};
use crate::owners::state;
use crate::support::{INSTALL, apply, gone, run};

/// Kinds of the backup, owners first.
const KINDS: [&str; 4] = ["knativefleets", "controllerrevisions", "knativefleetapprovals", "knativeservings"];
/// The webhook's configurations, which are restored last.
const WEBHOOKS: [&str; 2] = [
    "validatingwebhookconfiguration/validation.operator.knative.dev",
    "mutatingwebhookconfiguration/defaulting.operator.knative.dev",
];

/// The objects of the fleet's namespace, as a backup has them: with references to their owners.
async fn backup(hub: &Cluster) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for kind in KINDS {
        for mut object in hub.list(kind, PLACE).await? {
            let meta = object["metadata"].as_object_mut().ok_or("no metadata")?;
            for field in ["uid", "resourceVersion", "creationTimestamp", "generation"] {
                meta.remove(field);
            }
            object.as_object_mut().ok_or("no object")?.remove("status");
            all.push(object);
        }
    }
    Ok(all)
}

/// Removes all objects of the fleet's namespace, as if their etcd were new.
async fn empty(hub: &Cluster) -> Result<()> {
    for kind in ["knativefleets", "knativeservings"] {
        for object in hub.list(kind, PLACE).await? {
            let object = hub.stored(&object);
            // The garbage collector would take the references off restored objects, too, if it were
            // to orphan them.
            object.start_deletion_with(&DeleteParams::background()).await?;
            object.merge(&json!({"metadata": {"finalizers": null}})).await?;
        }
    }
    for kind in ["controllerrevisions", "knativefleetapprovals"] {
        hub.delete_all(kind, PLACE).await?;
    }
    Ok(())
}

/// The uid of the fleet.
async fn uid(hub: &Cluster) -> Result<String> {
    let stored = hub.object("knativefleet", PLACE, "prod").read().await?;
    Ok(stored["metadata"]["uid"].as_str().ok_or("no uid")?.to_owned())
}

/// Waits until the garbage collector has deleted `children` of a fleet that does not exist, or has
/// begun.
async fn collected<'c>(hub: &Cluster, children: impl Iterator<Item = &'c Value>) -> Result<()> {
    let servings: Api<KnativeServing> = Api::namespaced(hub.client(), PLACE);
    for child in children {
        let name = child["metadata"]["name"].as_str().unwrap_or_default();
        let is_deleted = |serving: Option<&KnativeServing>| {
            serving.is_none_or(|serving| serving.metadata.deletion_timestamp.is_some())
        };
        wait::until(&servings, name, INSTALL, "deleted by the garbage collector", is_deleted).await?;
    }
    Ok(())
}

/// Waits until the fleet with the uid `former` has left its two installations where they are, and
/// its revision is gone.
async fn left(hub: &Cluster, former: &str) -> Result<()> {
    let events: Api<Event> = Api::namespaced(hub.client(), PLACE);
    let of_former = format!("KnativeFleet prod with uid {former}");
    let says = |event: &Event| {
        let note = event.note.as_deref().unwrap_or_default();
        event.reason.as_deref() == Some("Orphaned") && note.contains(&of_former)
    };
    let both = |all: &[Event]| all.iter().filter(|event| says(event)).count() == 2;
    wait::until_all(&events, "", INSTALL, "left where they are", both).await?;
    let revisions: Api<ControllerRevision> = Api::namespaced(hub.client(), PLACE);
    let is_of_former = |revision: &ControllerRevision| {
        revision.metadata.owner_references.iter().flatten().any(|owner| owner.uid == former)
    };
    let none = |all: &[ControllerRevision]| !all.iter().any(is_of_former);
    wait::until_all(&revisions, "", INSTALL, "without the former revision", none).await.map(drop)
}

#[test]
fn restored_fleet_uninstalls_nothing() {
    run(async {
        let (hub, [a, b], mut product, _plugins) = two_spokes(&releases::small(), "restored-fleet").await?;
        let mut object = fleet(&json!({"version": "1.0.0", "ingress": {"kourier": {"enabled": true}}}));
        object["spec"]["rollout"] = json!({"stages": [{"name": "all", "maxConcurrent": 2, "approval": "Required"}]});
        apply(&hub, &object).await?;
        let first = status(&hub, "awaiting approval", |s| has(s, "Progressing", "AwaitingApproval")).await?;
        approve(&hub, first.update_revision.as_deref().unwrap_or_default(), "all").await?;
        status(&hub, "Ready", |s| has(s, "Ready", "Ready") && s.updated == 2).await?;
        let place = Component::Serving.canonical();
        let before = [state(&a, place).await?, state(&b, place).await?];
        hub.kubectl(&[&["delete"], &WEBHOOKS[..]].concat(), "").await?;
        // The operator starts after the objects are restored, and before.
        for (approvals, is_running) in [(1, false), (2, true)] {
            let (backup, former) = (backup(&hub).await?, uid(&hub).await?);
            // Of the fleet, its revision and its resources.
            assert_eq!(backup.len(), 4 + approvals, "{backup:#?}");
            product.stop_operator(Signal::TERM)?;
            empty(&hub).await?;
            gone(&hub, &object).await?;
            if is_running {
                product.start_operator(&hub).await?;
            }
            for object in &backup {
                hub.create(object, false).await?;
            }
            // Their fleet has another uid.
            collected(&hub, backup.iter().filter(|object| object["kind"] == "KnativeServing")).await?;
            if !is_running {
                product.start_operator(&hub).await?;
            }
            left(&hub, &former).await?;
            // The restored approval is for the former fleet.
            let are_gone = |s: &KnativeFleetStatus| {
                has(s, "Progressing", "AwaitingApproval")
                    && (s.clusters, s.updated, s.deferred, s.failed) == (2, 0, 0, 0)
            };
            let waiting = status(&hub, "awaiting approval", are_gone).await?;
            // The fleet takes the installations up.
            approve_as_recorded(&hub, waiting.update_revision.as_deref().unwrap_or_default(), "all").await?;
            status(&hub, "Ready again", |s| has(s, "Ready", "Ready") && s.updated == 2).await?;
            assert_eq!([state(&a, place).await?, state(&b, place).await?], before);
        }
        Ok(())
    });
}
