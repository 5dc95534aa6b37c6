//! Clusters whose etcd is restored from a backup: a hub whose spoke is a minor version ahead of it,
//! and a spoke that falls behind.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_shared::api::Component;
use knative_operator_shared::label::OWNER;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::measure::Audit;
use knative_operator_tests::product::{self, SPOKE_USER};
use knative_operator_tests::{Result, wait};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use super::versions::{bundle, has_version, nothing_is_written};
use super::{TEAM, hub};
use crate::owners::{ANCHOR, PLACE, state};
use crate::support::{INSTALL, apply, delete, has_condition, jobs_done, resource, run};

/// Time limit until the webhook knows that the hub was restored.
const NOTICED: Duration = wait::LIMIT;

fn asking(name: &str, profile: Option<&str>, version: &str) -> Value {
    resource(Component::Serving, TEAM, name, profile, json!({"version": version}))
}

/// Waits until the webhook admits `resource`, since it knows that its cluster is free. Nothing else
/// tells what the webhook knows.
async fn admitted(hub: &Cluster, resource: &Value) -> Result<()> {
    let deadline = Instant::now() + NOTICED;
    loop {
        match apply(hub, resource).await {
            Err(error) if Instant::now() > deadline => return Err(error),
            Err(_) => tokio::time::sleep(Duration::from_millis(500)).await,
            Ok(()) => return Ok(()),
        }
    }
}

#[test]
fn hub_restored_from_a_dump_changes_nothing_on_a_spoke_that_is_ahead() {
    run(async {
        let (folder, plugins) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let releases = bundle(&folder.path().join("bundle"), &["1.2.0"])?;
        let dump = folder.path().join("dump");
        let spoke = Cluster::spoke("ahead").await?;
        let (mut hub, _product) = hub("restored-hub", &releases, plugins.path(), &[("spoke", &spoke)]).await?;
        let old = asking("knative-serving", Some("spoke"), "1.1");
        apply(&hub, &old).await?;
        has_version(&hub, "1.1.0").await?;
        jobs_done(&spoke, PLACE, ANCHOR).await?;
        product::register(&hub, &spoke, "late").await?;
        hub.dump(&dump).await?;

        apply(&hub, &asking("knative-serving", Some("spoke"), "1.2")).await?;
        has_version(&hub, "1.2.0").await?;
        // What the webhook must forget.
        apply(&hub, &asking("lost", Some("late"), "1.1")).await?;
        jobs_done(&spoke, PLACE, ANCHOR).await?;
        let installed = state(&spoke, PLACE).await?;
        let mut audit = Audit::of(&spoke, SPOKE_USER)?;

        // Operator and webhook see an API server that was away.
        hub.restore(&dump).await?;
        let part = "the cluster has version 1.2.0, which is newer than the 1.1.0 of this resource";
        has_condition(&hub, &old, "VersionMigrationEligible", "Error", part).await?;
        nothing_is_written(&mut audit, &spoke).await?;
        assert_eq!(state(&spoke, PLACE).await?, installed);

        // Other changes, after which the resource is newer than the one that asked for 1.2.
        for value in ["1", "2", "3"] {
            let mut changed = old.clone();
            changed["spec"]["config"] = json!({"defaults": {"changed": value}});
            apply(&hub, &changed).await?;
        }
        nothing_is_written(&mut audit, &spoke).await?;
        has_condition(&hub, &old, "VersionMigrationEligible", "Error", part).await?;

        // Changes of the version count again.
        apply(&hub, &asking("knative-serving", Some("spoke"), "1.2")).await?;
        has_version(&hub, "1.2.0").await?;
        assert_eq!(state(&spoke, PLACE).await?, installed);
        admitted(&hub, &asking("other", Some("late"), "1.1")).await?;
        delete(&hub, &asking("other", Some("late"), "1.1")).await?;
        delete(&hub, &old).await
    });
}

#[test]
fn restored_spoke_gets_what_it_had() {
    run(async {
        let (folder, plugins) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let releases = bundle(&folder.path().join("bundle"), &["1.2.0"])?;
        let dump = folder.path().join("dump");
        let mut spoke = Cluster::spoke("behind").await?;
        let (hub, _product) = hub("behind-hub", &releases, plugins.path(), &[("spoke", &spoke)]).await?;
        apply(&hub, &asking("knative-serving", Some("spoke"), "1.1")).await?;
        has_version(&hub, "1.1.0").await?;
        jobs_done(&spoke, PLACE, ANCHOR).await?;
        spoke.dump(&dump).await?;
        let installed = state(&spoke, PLACE).await?;

        let mut resource = asking("knative-serving", Some("spoke"), "1.2");
        resource["spec"]["config"] = json!({"defaults": {"changed": "since"}});
        apply(&hub, &resource).await?;
        has_version(&hub, "1.2.0").await?;
        spoke.restore(&dump).await?;
        let anchors: Api<ConfigMap> = Api::namespaced(spoke.client(), PLACE);
        let is_new = |found: Option<&ConfigMap>| found.is_some_and(|anchor| version(anchor) == "1.2.0");
        wait::until(&anchors, ANCHOR, INSTALL, "the version that it had", is_new).await?;
        has_version(&hub, "1.2.0").await?;
        // Also what nobody else changes.
        let is_set = |found: Option<&ConfigMap>| {
            found.and_then(|map| map.data.as_ref()?.get("changed")).is_some_and(|value| value == "since")
        };
        wait::until(&anchors, "config-defaults", INSTALL, "its setting", is_set).await?;
        let uids = |state: BTreeMap<String, (String, i64)>| state.into_iter().map(|(name, (uid, _))| (name, uid));
        assert!(uids(installed).eq(uids(state(&spoke, PLACE).await?)), "restarted");
        delete(&hub, &resource).await
    });
}

/// The version that `anchor` records.
fn version(anchor: &ConfigMap) -> String {
    let owner = anchor.annotations().get(OWNER).and_then(|text| serde_json::from_str::<Value>(text).ok());
    owner.and_then(|owner| Some(owner["applied"]["version"].as_str()?.to_owned())).unwrap_or_default()
}
