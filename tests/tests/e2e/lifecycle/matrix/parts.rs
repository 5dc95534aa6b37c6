//! What the cells of the matrix apply and check.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use knative_operator_shared::api::{Component, KnativeServing};
use knative_operator_shared::label::APP_VERSION;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, tools};
use kube::ResourceExt;
use serde_json::{Value, json};

use super::{DELETED, Event, OLD, Running, State};
use crate::knative_fleet;
use crate::lifecycle::TEAM;
use crate::support::{apply, condition, resource};

/// Time limit until the webhook knows a changed bundle.
const KNOWN: Duration = knative_operator_tests::wait::LIMIT;

/// A bundle in `folder` with the small release, and `newer` versions of Serving, which are copies
/// of 1.1.0 with other labels.
pub(super) fn bundle(folder: &Path, newer: &[&str]) -> Result<Releases> {
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    tools::copy(&releases::small().dir, folder)?;
    for version in newer {
        let minor = version.rsplit_once('.').map_or(*version, |(minor, _)| minor);
        copy_as(version, &folder.join("knative-serving").join(OLD), &folder.join("knative-serving").join(version))?;
        copy_as(version, &folder.join("ingress/1.1/kourier"), &folder.join("ingress").join(minor).join("kourier"))?;
    }
    Ok(Releases { dir: folder.to_owned(), ..releases::small() })
}

fn copy_as(version: &str, from: &Path, to: &Path) -> Result<()> {
    tools::copy(from, to)?;
    let label = |version: &str| format!("{APP_VERSION}: \"{version}\"");
    for entry in fs::read_dir(to)? {
        let path = entry?.path();
        fs::write(&path, fs::read_to_string(&path)?.replace(&label(OLD), &label(version)))?;
    }
    Ok(())
}

/// The namespace of the resources.
pub(super) fn place(state: State) -> &'static str {
    if state == State::RollingOut { knative_fleet::PLACE } else { TEAM }
}

/// The resource, or the fleet; `setting` changes a ConfigMap and no Pod.
pub(super) fn asking(state: State, version: &str, setting: &str) -> Value {
    let spec = json!({"version": version, "ingress": {"kourier": {"enabled": true}}, "config": {"defaults": {"matrix": setting}}});
    if state != State::RollingOut {
        return resource(Component::Serving, TEAM, "knative-serving", Some("spoke"), spec);
    }
    let mut fleet = knative_fleet::fleet(&spec);
    fleet["spec"]["rollout"] = json!({});
    fleet
}

/// Applies `object`, once the webhook knows the versions of a changed bundle.
pub(super) async fn ask(hub: &Cluster, object: &Value) -> Result<()> {
    let started = Instant::now();
    // Polled: nothing reports which bundle the webhook knows.
    loop {
        match apply(hub, object).await {
            Err(error) if error.to_string().contains("are not available") && started.elapsed() < KNOWN => {
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            other => return other,
        }
    }
}

pub(super) fn is_ready(serving: &KnativeServing, version: &str) -> bool {
    serving.status.as_ref().is_some_and(|status| {
        status.observed_generation == serving.metadata.generation
            && status.version.as_deref() == Some(version)
            && condition(status, "Ready").is_some_and(|ready| ready.status == "True")
    })
}

/// Whether condition `type_` is not True, for `reason`.
pub(super) fn has_failed(serving: &KnativeServing, type_: &str, reason: &str) -> bool {
    let found = serving.status.as_ref().and_then(|status| condition(status, type_));
    found.is_some_and(|found| found.status != "True" && found.reason.as_deref() == Some(reason))
}

/// Checks that all objects that were there `before` still are.
pub(super) async fn nothing_lost(cluster: &Cluster, before: &BTreeSet<String>) -> Result<()> {
    let now = objects(&cluster.client()).await?;
    let lost: Vec<_> = before.difference(&now).collect();
    if lost.is_empty() { Ok(()) } else { Err(format!("lost on {}: {lost:#?}", cluster.name()).into()) }
}

/// Checks that what was `running` is, apart from what the event deleted. The generation of a
/// Deployment counts changes of its annotations, too, so it is not compared.
pub(super) fn nothing_restarted(event: Event, running: &Running, now: &Running) -> Result<()> {
    if matches!(event, Event::NamespaceDeleted | Event::SpokeReplaced) {
        return Ok(()); // nothing is left that runs
    }
    let own = [format!("Deployment {DELETED}"), format!("Pod {DELETED}-")];
    let is_deleted =
        |name: &str| event == Event::DeploymentDeleted && own.iter().any(|deleted| name.starts_with(deleted));
    let restarted: Vec<_> = running
        .iter()
        .filter(|(name, was)| !is_deleted(name) && now.get(*name).map(|is| &is.0) != Some(&was.0))
        .collect();
    if restarted.is_empty() { Ok(()) } else { Err(format!("restarted: {restarted:?}, now {now:?}").into()) }
}

/// Whether the anchor with `uid` owns `deployment`.
pub(super) fn is_owned(deployment: &Deployment, uid: Option<&str>) -> bool {
    deployment.owner_references().iter().any(|owner| Some(owner.uid.as_str()) == uid)
}
