//! `KnativeFleet`: a rollout in stages, with approval, failure, recovery and deletion.

use std::time::Duration;

use k8s_openapi::api::events::v1::Event;
use knative_operator_shared::api::fleet::{KnativeFleetStatus, StageState};
use knative_operator_shared::api::{KnativeFleet, KnativeServing};
use knative_operator_shared::fleet::content::digest;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::{Result, http, wait};
use kube::Api;
use kube::api::ListParams;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{INSTALL, apply, confirm, gone, has_event, namespace, run, step};

pub const PLACE: &str = "platform";

pub fn fleet(serving: &Value) -> Value {
    json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": "prod", "namespace": PLACE}, "spec": {
        "placement": {"clusterSelector": {"matchLabels": {"env": "prod"}}, "namespaces": [FLEET]},
        "serving": {"spec": serving},
        "rollout": {"stages": [
            {"name": "canary", "clusterSelector": {"matchLabels": {"tier": "canary"}}},
            {"name": "prod", "maxConcurrent": 2, "approval": "Required"},
        ]},
        "removal": {"gracePeriodSeconds": 1},
    }})
}

/// Waits until `holds` is true for the status of the fleet.
pub async fn status(
    hub: &Cluster,
    what: &str,
    holds: impl Fn(&KnativeFleetStatus) -> bool,
) -> Result<KnativeFleetStatus> {
    status_of(hub, "prod", what, holds).await
}

/// Waits until `holds` is true for the status of the fleet `name` in its current generation.
pub async fn status_of(
    hub: &Cluster,
    name: &str,
    what: &str,
    holds: impl Fn(&KnativeFleetStatus) -> bool,
) -> Result<KnativeFleetStatus> {
    let api = Api::<KnativeFleet>::namespaced(hub.client(), PLACE);
    let found = wait::until(&api, name, INSTALL, what, |fleet| {
        fleet.is_some_and(|fleet| {
            let status = fleet.status.as_ref();
            status.is_some_and(|status| status.observed_generation == fleet.metadata.generation && holds(status))
        })
    });
    found.await?.and_then(|fleet| fleet.status).ok_or_else(|| "no status".into())
}

pub fn has(status: &KnativeFleetStatus, type_: &str, reason: &str) -> bool {
    status.conditions.iter().any(|condition| condition.type_ == type_ && condition.reason.as_deref() == Some(reason))
}

/// How each rollout in `status` ended.
fn results(status: &KnativeFleetStatus) -> Vec<&str> {
    status.rollouts.iter().map(|rollout| rollout.result.as_deref().unwrap_or("in progress")).collect()
}

/// Clusters of the children, with their `spec.version`.
pub async fn children(hub: &Cluster) -> Result<Vec<(String, String)>> {
    let all = Api::<KnativeServing>::namespaced(hub.client(), PLACE).list(&ListParams::default()).await?;
    let child = |serving: KnativeServing| {
        let common = serving.spec.common;
        (common.cluster_profile_ref.map(|cluster| cluster.name).unwrap_or_default(), common.version.unwrap_or_default())
    };
    let mut children: Vec<_> = all.into_iter().map(child).collect();
    children.sort();
    Ok(children)
}

pub async fn approve(hub: &Cluster, revision: &str, stage: &str) -> Result<()> {
    let approval = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleetApproval",
        "metadata": {"name": format!("{revision}-{stage}"), "namespace": PLACE}, "spec": {"fleet": "prod", "revision": revision, "stage": stage, "username": "somebody"}});
    apply(hub, &approval).await
}

/// The same on a hub without webhook, as the webhook would record it.
pub async fn approve_as_recorded(hub: &Cluster, revision: &str, stage: &str) -> Result<()> {
    let recorded = recorded(hub).await?;
    let mut spec = json!({"fleet": "prod", "revision": revision, "stage": stage, "username": "somebody"});
    for (field, value) in recorded.as_object().into_iter().flatten() {
        spec[field] = value.clone();
    }
    let approval = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleetApproval",
        "metadata": {"name": format!("{revision}-{stage}"), "namespace": PLACE}, "spec": spec});
    apply(hub, &approval).await
}

/// What the webhook records about the fleet in an approval.
pub async fn recorded(hub: &Cluster) -> Result<Value> {
    let fleet = Api::<KnativeFleet>::namespaced(hub.client(), PLACE).get("prod").await?;
    let meta = fleet.metadata;
    Ok(json!({"fleetUID": meta.uid, "fleetGeneration": meta.generation, "digest": digest(&fleet.spec)}))
}

/// The canary is first, and the next stage waits for an approval. Returns the status at the end.
async fn stages_follow_an_approval(hub: &Cluster) -> Result<KnativeFleetStatus> {
    let waiting = status(hub, "awaiting approval", |status| has(status, "Progressing", "AwaitingApproval")).await?;
    assert_eq!(children(hub).await?, [("a".to_owned(), "1.0.0".to_owned())]);
    assert_eq!((waiting.clusters, waiting.updated, waiting.stage.as_deref()), (3, 1, Some("prod")));
    let progressing = waiting.conditions.iter().find(|condition| condition.type_ == "Progressing");
    let message = progressing.and_then(|condition| condition.message.clone()).unwrap_or_default();
    let command = "; approve the stage with knative-operator fleet approve NAME -n NAMESPACE, ";
    assert!(message.contains(command), "{message}");
    approve(hub, waiting.update_revision.as_deref().unwrap_or_default(), "prod").await?;
    let done = status(hub, "Ready", |status| has(status, "Ready", "Ready")).await?;
    assert_eq!(done.current_revision, waiting.update_revision);
    assert!(done.stages.iter().all(|stage| stage.state == StageState::Complete), "{done:?}");
    assert_eq!(children(hub).await?.len(), 3);
    let [rollout] = done.rollouts.as_slice() else { return Err(format!("one rollout: {done:?}").into()) };
    assert_eq!(Some(&rollout.revision), done.update_revision.as_ref());
    assert!(rollout.requested_by.is_some() && rollout.finished_at.is_some(), "{rollout:?}");
    let approved: Vec<_> = rollout.approvals.iter().map(|approval| approval.stage.as_str()).collect();
    assert_eq!((results(&done), approved), (vec!["Complete"], vec!["prod"]));
    Ok(done)
}

/// A version that does not exist is refused; a manifest that does not exist stops at the canary.
/// Returns the status then. `serving` is the spec that is rolled out.
async fn failure_stops_at_the_canary(hub: &Cluster, serving: &Value) -> Result<KnativeFleetStatus> {
    let mut serving = serving.clone();
    serving["version"] = json!("1.9.0");
    let (admitted, output) = hub.kubectl_output(&["apply", "-f", "-"], &fleet(&serving).to_string()).await;
    assert!(!admitted && output.contains("spec.serving.spec.version: the manifests"), "{output}");
    (serving["version"], serving["additionalManifests"]) = (json!("1.0.0"), json!([{"URL": "none/there.yaml"}]));
    let mut failing = fleet(&serving);
    failing["spec"]["rollout"]["stages"][0]["progressDeadlineSeconds"] = json!(5);
    apply(hub, &failing).await?;
    let paused = status(hub, "paused", |status| has(status, "Paused", "TooManyFailures")).await?;
    assert_eq!((paused.failed, paused.attention.len()), (1, 1));
    assert!(paused.attention[0].message.contains("none/there.yaml"), "{paused:?}");
    Ok(paused)
}

/// A failed canary that is taken out of the fleet stays one, and stays installed.
async fn failed_canary_stays_one(hub: &Cluster) -> Result<()> {
    hub.object("clusterprofile", FLEET, "a").label(&json!({"env": null})).await?;
    let out = status(hub, "taken out", |status| has(status, "RemovalPending", "GracePeriod")).await?;
    assert!(has(&out, "Paused", "TooManyFailures") && out.failed == 1, "{out:?}");
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(children(hub).await?.len(), 3);
    hub.object("clusterprofile", FLEET, "a").label(&json!({"env": "prod"})).await?;
    status(hub, "back", |status| has(status, "RemovalPending", "NotPending")).await.map(drop)
}

async fn edit_is_repaired(hub: &Cluster) -> Result<()> {
    let api = Api::<KnativeServing>::namespaced(hub.client(), PLACE);
    let name = api.list(&ListParams::default()).await?.items[2].metadata.name.clone().unwrap_or_default();
    let edit = r#"{"spec":{"config":{"network":{"by":"hand"}}}}"#;
    let (_, output) =
        hub.kubectl_output(&["patch", "knativeserving", &name, "-n", PLACE, "--type=merge", "-p", edit], "").await;
    assert!(output.contains("Warning: spec: KnativeFleet prod manages this resource, and repairs"), "{output}");
    let is_repaired = |serving: Option<&KnativeServing>| serving.is_some_and(|s| s.spec.common.config.is_empty());
    wait::until(&api, &name, INSTALL, "repaired", is_repaired).await.map(drop)
}

/// An approval is given in advance, and none of what is not rolled out any more, whose status was
/// `paused`.
async fn next_version_is_approved_in_advance(
    hub: &Cluster,
    serving: &Value,
    paused: &KnativeFleetStatus,
) -> Result<()> {
    apply(hub, &fleet(serving)).await?;
    let next = status(hub, "the next revision", |status| status.update_revision != paused.update_revision).await?;
    // An approval of what is not rolled out any more.
    let late = approve(hub, paused.update_revision.as_deref().unwrap_or_default(), "prod").await;
    assert!(late.is_err_and(|error| error.to_string().contains("is not the revision of the spec")));
    approve(hub, next.update_revision.as_deref().unwrap_or_default(), "prod").await?;
    let updated = status(hub, "Ready", |status| has(status, "Ready", "Ready")).await?;
    assert!(children(hub).await?.iter().all(|(_, version)| version.starts_with("1.1.")));
    assert_eq!(results(&updated), ["Complete", "Superseded", "Complete"]);
    Ok(())
}

async fn mistyped_selector_removes_nothing(hub: &Cluster, serving: &Value) -> Result<()> {
    let mut mistyped = fleet(serving);
    mistyped["spec"]["placement"]["clusterSelector"]["matchLabels"]["env"] = json!("prd");
    apply(hub, &mistyped).await?;
    // Its name follows from the times since when they left, which are recorded before.
    let is_blocked = |status: &KnativeFleetStatus| {
        let is_named = status.blocked_removal.as_ref().is_some_and(|removal| removal.name.is_some());
        has(status, "RemovalBlocked", "TooManyClusters") && is_named
    };
    let blocked = status(hub, "blocked", is_blocked).await?;
    let message = blocked.conditions.iter().find(|c| c.type_ == "RemovalBlocked").and_then(|c| c.message.clone());
    let expected = "All clusters (3) would leave the fleet: fleet-system/a, fleet-system/b, fleet-system/c; ";
    assert!(message.is_some_and(|message| message.starts_with(expected)));
    let removal = blocked.blocked_removal.map(|removal| (removal.clusters, removal.limit));
    assert_eq!(removal, Some((3, 0)));
    assert_eq!(children(hub).await?.len(), 3);
    apply(hub, &fleet(serving)).await?;
    let is_unblocked =
        |status: &KnativeFleetStatus| has(status, "RemovalBlocked", "NotBlocked") && status.blocked_removal.is_none();
    status(hub, "unblocked", is_unblocked).await?;
    assert_eq!(children(hub).await?.len(), 3);
    Ok(())
}

async fn events_and_metrics_tell_of_the_rollouts(hub: &Cluster, product: &Product) -> Result<()> {
    for reason in [
        "RolloutStarted",
        "StageStarted",
        "AwaitingApproval",
        "StageComplete",
        "TooManyFailures",
        "TooManyClusters",
        "Ready",
    ] {
        has_event(hub, PLACE, reason, "").await?;
    }
    let (_, metrics) = http::get(product.metrics(), "/metrics").await?;
    for series in [
        r#"fleet_clusters{namespace="platform",name="prod",state="updated"} 3"#,
        r#"fleet_clusters_known{namespace="platform",name="prod"} 1"#,
        r#"fleet_stage{namespace="platform",name="prod",stage="canary",state="Complete"} 1"#,
        r#"fleet_condition{namespace="platform",name="prod",condition="Ready"} 1"#,
        r#"fleet_rollouts_total{outcome="complete"} 2"#,
        r#"fleet_rollouts_total{outcome="failed"} 1"#,
        "fleet_rollout_duration_seconds_count 2",
    ] {
        assert!(metrics.contains(&format!("knative_operator_{series}")), "{series}: {metrics}");
    }
    Ok(())
}

/// `done` is the status at the end of the first rollout.
async fn approvals_are_bound(hub: &Cluster, done: &KnativeFleetStatus) -> Result<()> {
    // Nobody can approve in the name of somebody else.
    let approvals = hub.kubectl(&["get", "kfapproval", "-n", PLACE, "-o", "jsonpath={.items[*].spec.username}"], "");
    assert!(approvals.await?.split(' ').all(|user| !user.is_empty() && user != "somebody"));
    // One of them is bound to what is rolled out now.
    let digests = hub.kubectl(&["get", "kfapproval", "-n", PLACE, "-o", "jsonpath={.items[*].spec.digest}"], "");
    let (recorded, digests) = (recorded(hub).await?, digests.await?);
    assert!(digests.split(' ').any(|digest| recorded["digest"] == digest), "{digests}");
    let edit = r#"{"spec":{"stage":"canary"}}"#;
    let approved = format!("{}-prod", done.update_revision.as_deref().unwrap_or_default());
    let (admitted, output) =
        hub.kubectl_output(&["patch", "kfapproval", &approved, "-n", PLACE, "--type=merge", "-p", edit], "").await;
    assert!(!admitted && output.contains("spec is immutable"), "{output}");
    Ok(())
}

async fn fleet_of_the_same_name_needs_its_own_approvals(hub: &Cluster, object: &Value) -> Result<()> {
    apply(hub, object).await?;
    let again = status(hub, "awaiting approval", |status| has(status, "Progressing", "AwaitingApproval")).await?;
    assert_eq!((again.updated, children(hub).await?.len()), (1, 1));
    confirm(hub, PLACE, "prod").await?;
    hub.stored(object).start_deletion().await?;
    gone(hub, object).await
}

#[test]
fn rollout_runs_in_stages() {
    run(async {
        let (hub, a, b, c) = tokio::try_join!(
            Cluster::hub("kfleet"),
            Cluster::spoke("kfleet-a"),
            Cluster::spoke("kfleet-b"),
            Cluster::spoke("kfleet-c")
        )?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let mut values = product::values(&[]);
        values["knative_operator"]["fleet"] = json!({"enabled": true});
        let product = Product::create(&hub, &releases, values, plugins.path()).await?;
        for (name, spoke, tier) in [("a", &a, "canary"), ("b", &b, "rest"), ("c", &c, "rest")] {
            product::register(&hub, spoke, name).await?;
            hub.object("clusterprofile", FLEET, name).label(&json!({"tier": tier, "env": "prod"})).await?;
        }
        namespace(&hub, PLACE).await?;
        let mut serving = json!({"version": "1.0.0", "ingress": {"kourier": {"enabled": true}}});
        apply(&hub, &fleet(&serving)).await?;
        let done = step("stages follow an approval", stages_follow_an_approval(&hub)).await?;
        let paused = step("a failure stops at the canary", failure_stops_at_the_canary(&hub, &serving)).await?;
        step("a failed canary stays one", failed_canary_stays_one(&hub)).await?;
        step("an edit is repaired", edit_is_repaired(&hub)).await?;
        serving["version"] = json!("1.1");
        let next = next_version_is_approved_in_advance(&hub, &serving, &paused);
        step("the next version is approved in advance", next).await?;
        step("a mistyped selector removes nothing", mistyped_selector_removes_nothing(&hub, &serving)).await?;
        step("events and metrics", events_and_metrics_tell_of_the_rollouts(&hub, &product)).await?;
        step("approvals are bound", approvals_are_bound(&hub, &done)).await?;
        eprintln!("{}", hub.kubectl(&["describe", "kfleet", "prod", "-n", PLACE], "").await?);
        eprintln!("{}", hub.kubectl(&["get", "kfleet,knativeserving", "-n", PLACE], "").await?);
        let object = fleet(&serving);
        confirm(&hub, PLACE, "prod").await?;
        hub.stored(&object).start_deletion().await?;
        gone(&hub, &object).await?;
        assert!(children(&hub).await?.is_empty());
        step("another fleet of the same name", fleet_of_the_same_name_needs_its_own_approvals(&hub, &object)).await
    });
}

/// A hub with the operator, and two spokes, `a` and `b`.
pub async fn two_spokes(
    releases: &Releases,
    name: &str,
) -> Result<(Cluster, [Cluster; 2], Product, tempfile::TempDir)> {
    let names = ["hub", "a", "b"].map(|part| format!("{name}-{part}"));
    let (hub, a, b) = tokio::try_join!(Cluster::hub(&names[0]), Cluster::spoke(&names[1]), Cluster::spoke(&names[2]))?;
    let plugins = tempfile::tempdir()?;
    let mut values = product::values(&[]);
    values["knative_operator"]["fleet"] = json!({"enabled": true});
    let product = Product::create(&hub, releases, values, plugins.path()).await?;
    for (name, spoke) in [("a", &a), ("b", &b)] {
        product::register(&hub, spoke, name).await?;
        hub.object("clusterprofile", FLEET, name).label(&json!({"env": "prod"})).await?;
    }
    namespace(&hub, PLACE).await?;
    Ok((hub, [a, b], product, plugins))
}

#[test]
fn failed_rollout_is_rolled_back_and_unhealthy_cluster_catches_up() {
    run(async {
        let releases = releases::small();
        let (hub, [_a, b], mut product, _plugins) = two_spokes(&releases, "kfleet-back").await?;
        let mut serving = json!({"version": "1.0.0", "ingress": {"kourier": {"enabled": true}}});
        let apply_fleet = async |serving: &Value, deadline: u64| {
            let mut object = fleet(serving);
            object["spec"]["rollout"] =
                json!({"stages": [{"name": "all", "progressDeadlineSeconds": deadline}], "onFailure": "Rollback"});
            apply(&hub, &object).await
        };
        apply_fleet(&serving, INSTALL.as_secs()).await?;
        let first = status(&hub, "Ready", |status| has(status, "Ready", "Ready")).await?;

        // The manifest does not exist: the first cluster fails, and returns.
        let mut broken = serving.clone();
        broken["additionalManifests"] = json!([{"URL": "none/there.yaml"}]);
        // Enough for a cluster that returns to what it had, on a loaded machine, too.
        apply_fleet(&broken, 15).await?;
        let back = status(&hub, "rolled back", |status| has(status, "Progressing", "RolledBack")).await?;
        assert_eq!(back.current_revision, first.current_revision);
        let all = Api::<KnativeServing>::namespaced(hub.client(), PLACE).list(&ListParams::default()).await?;
        assert!(all.iter().all(|serving| serving.spec.common.additional_manifests.is_empty()), "{all:?}");
        // It is not tried again, not even after a restart.
        product.restart_operator(&hub, Signal::KILL).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let all = Api::<KnativeServing>::namespaced(hub.client(), PLACE).list(&ListParams::default()).await?;
        assert!(all.iter().all(|serving| serving.spec.common.additional_manifests.is_empty()), "{all:?}");

        // A cluster that is not healthy is deferred, and catches up.
        product::status(&hub, "b", "False", &product::access(&b, "b")).await?;
        serving["config"] = json!({"network": {"domain-template": "x"}});
        apply_fleet(&serving, INSTALL.as_secs()).await?;
        let deferred = status(&hub, "deferred", |status| status.deferred == 1 && status.updated == 1).await?;
        assert_eq!(
            (deferred.attention[0].cluster.name.as_str(), deferred.attention[0].reason.as_str()),
            ("b", "Deferred")
        );
        product::status(&hub, "b", "True", &product::access(&b, "b")).await?;
        let done = status(&hub, "Ready", |status| has(status, "Ready", "Ready") && status.updated == 2).await?;
        assert_eq!(results(&done), ["Complete", "RolledBack", "Complete"]);
        Ok(())
    });
}

#[test]
fn each_minor_version_is_installed_on_the_way() {
    let releases = releases::best();
    run(async {
        let (hub, _spokes, _product, _plugins) = two_spokes(&releases, "kfleet-walk").await?;
        for version in ["1.20", "1.23"] {
            let mut object = fleet(&json!({"version": version, "ingress": {"kourier": {"enabled": true}}}));
            object["spec"]["rollout"] = json!({"stages": [{"name": "all", "maxConcurrent": "100%"}]});
            apply(&hub, &object).await?;
            let api = Api::<KnativeServing>::namespaced(hub.client(), PLACE);
            status(&hub, "Ready", |status| has(status, "Ready", "Ready")).await?;
            for serving in api.list(&ListParams::default()).await? {
                let installed = serving.status.and_then(|status| status.version).unwrap_or_default();
                assert!(installed.starts_with(version), "{installed}");
            }
        }
        let events = Api::<Event>::namespaced(hub.client(), PLACE);
        let steps = |all: &[Event]| {
            ["from 1.20.3: ", "from 1.21.3: ", "from 1.22.1: "]
                .map(|step| all.iter().filter(|event| event.note.as_deref().unwrap_or_default().contains(step)).count())
        };
        let limit = wait::LIMIT;
        wait::until_all(&events, "", limit, "of each step on both clusters", |all| steps(all) == [2; 3]).await?;
        Ok(())
    });
}
