//! A version moves only when somebody asks: not with another bundle, not with a restored hub.

use std::fs;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_shared::api::{Component, KnativeStatus};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::measure::{Audit, Request};
use knative_operator_tests::product::{self, Product, SPOKE_USER};
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::{Result, project, wait};
use kube::api::DeleteParams;
use kube::{Api, ResourceExt};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::{TEAM, hub};
use crate::owners::{ANCHOR, PLACE, state};
use crate::status::command;
use crate::support::{
    INSTALL, apply, condition, delete, has_condition, has_event, jobs_done, ready, resource, run, status,
};

/// Start of the names of archived releases.
const RELEASE: &str = "knative-operator-release-knative-serving-";
/// Time in which nothing is written to a spoke.
const REST: Duration = Duration::from_secs(5);

/// A bundle in `folder` with the versions 1.0.0 and 1.1.0, and `newer` of Serving, a copy of 1.1.0.
pub(super) fn bundle(folder: &Path, newer: &[&str]) -> Result<Releases> {
    let small = releases::small();
    if !folder.exists() {
        copy(&project().join("tests/release"), folder)?;
        copy(&folder.join("ingress/1.1"), &folder.join("ingress/1.2"))?;
    }
    let serving = folder.join("knative-serving");
    for version in ["1.1.1", "1.2.0"] {
        if serving.join(version).exists() {
            fs::remove_dir_all(serving.join(version))?;
        }
    }
    for version in newer {
        copy(&serving.join("1.1.0"), &serving.join(version))?;
    }
    Ok(Releases { dir: folder.to_owned(), ..small })
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}

fn asking(version: &str) -> Value {
    resource(Component::Serving, TEAM, "knative-serving", Some("spoke"), json!({"version": version}))
}

pub(super) async fn has_version(hub: &Cluster, version: &str) -> Result<()> {
    let is_done = |s: &KnativeStatus| {
        s.version.as_deref() == Some(version) && condition(s, "Ready").is_some_and(|c| c.status == "True")
    };
    status(hub, &asking(version), INSTALL, &format!("Ready with {version}"), is_done).await.map(drop)
}

/// Checks that the operator writes nothing to the spoke of `audit`.
pub(super) async fn nothing_is_written(audit: &mut Audit, spoke: &Cluster) -> Result<()> {
    tokio::time::sleep(REST).await;
    let writes: Vec<_> = audit.take_all(&spoke.client()).await?.into_iter().filter(Request::writes).collect();
    assert!(writes.is_empty(), "{} writes: {writes:?}", writes.len());
    Ok(())
}

/// Waits until the archive has only `version`.
async fn archived(hub: &Cluster, version: &str) -> Result<()> {
    let maps: Api<ConfigMap> = Api::namespaced(hub.client(), product::NAMESPACE);
    let name = format!("{RELEASE}{version}");
    let is_only = |maps: &[ConfigMap]| maps.iter().map(ResourceExt::name_any).eq([name.clone()]);
    wait::until_all(&maps, "operator.knative.dev/archived-release", INSTALL, "an archive", is_only).await.map(drop)
}

/// Checks what `upgrade plan` says about the bundle in `folder`.
async fn planned(hub: &Cluster, folder: &Path, status: i32, part: &str) -> Result<()> {
    let folder = folder.display().to_string();
    let (code, text, error) = command(&hub.kubeconfig(), &["upgrade", "plan", "--releases", &folder]).await?;
    assert_eq!(code, Some(status), "{text}{error}");
    assert!(text.contains(part), "{text}");
    Ok(())
}

/// Recreates the resource of `asked` as a backup tool does, while no operator runs.
async fn restore(hub: &Cluster, asked: &Value, status: Option<&str>) -> Result<()> {
    let line = ["patch", "knativeserving", "knative-serving", "-n", TEAM, "--type=merge", "-p"];
    hub.kubectl(&[&line[..], &[r#"{"metadata":{"finalizers":null}}"#]].concat(), "").await?;
    hub.object("knativeserving", TEAM, "knative-serving").delete().await?;
    apply(hub, asked).await?;
    if let Some(version) = status {
        let patch = json!({"status": {"version": version}}).to_string();
        hub.kubectl(&[&line[..], &[patch.as_str(), "--subresource=status"]].concat(), "").await?;
    }
    Ok(())
}

/// With the flag, an operator whose bundle has a newer patch upgrades nothing; without it, it does.
async fn is_kept_on_request(hub: &Cluster, spoke: &Cluster, product: &mut Product, folder: &Path) -> Result<()> {
    // A running one reads the bundle with each reconcile.
    product.stop_operator(Signal::TERM)?;
    bundle(folder, &["1.1.1"])?;
    let flag =
        r#"[{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": "--keep-installed-versions"}]"#;
    let deployment = ["deployment/knative-operator", "-n", product::NAMESPACE];
    hub.kubectl(&[&["patch", "--type=json", "-p", flag], &deployment[..]].concat(), "").await?;
    let mut audit = Audit::of(spoke, SPOKE_USER)?;
    product.start_operator(hub).await?;
    nothing_is_written(&mut audit, spoke).await?;
    has_version(hub, "1.1.0").await?;
    hub.kubectl(&[&["rollout", "undo"], &deployment[..]].concat(), "").await?;
    product.restart_operator(hub, Signal::TERM).await?;
    has_version(hub, "1.1.1").await
}

#[test]
fn version_moves_only_when_asked() {
    run(async {
        let (folder, plugins) = (tempfile::tempdir()?, tempfile::tempdir()?);
        let folder = folder.path().join("bundle");
        let releases = bundle(&folder, &[])?;
        let spoke = Cluster::spoke("versions").await?;
        let (hub, mut product) = hub("versions-hub", &releases, plugins.path(), &[("spoke", &spoke)]).await?;
        apply(&hub, &asking("1.1")).await?;
        has_version(&hub, "1.1.0").await?;
        jobs_done(&spoke, PLACE, ANCHOR).await?;
        is_kept_on_request(&hub, &spoke, &mut product, &folder).await?;
        jobs_done(&spoke, PLACE, ANCHOR).await?;
        let installed = state(&spoke, PLACE).await?;

        // The operator is rolled back: its bundle lacks the installed version, which is repaired
        // from the archive.
        archived(&hub, "1.1.1").await?;
        bundle(&folder, &[])?;
        planned(&hub, &folder, 1, "NOT IN THE BUNDLE").await?;
        let mut audit = Audit::of(&spoke, SPOKE_USER)?;
        product.restart_operator(&hub, Signal::TERM).await?;
        has_event(&hub, TEAM, "VersionNotInBundle", "lacks the installed version 1.1.1").await?;
        nothing_is_written(&mut audit, &spoke).await?;
        assert_eq!(state(&spoke, PLACE).await?, installed);
        let deployments: Api<Deployment> = Api::namespaced(spoke.client(), PLACE);
        let uid = deployments.get("controller").await?.metadata.uid;
        deployments.delete("controller", &DeleteParams::default()).await?;
        let is_back = |found: Option<&Deployment>| found.is_some_and(|found| found.metadata.uid != uid);
        wait::until(&deployments, "controller", INSTALL, "a repaired Deployment", is_back).await?;
        ready(&hub, &asking("1.1")).await?;
        let installed = state(&spoke, PLACE).await?;
        // Without the archive, it stays as it is.
        hub.kubectl(&["delete", "configmap", &format!("{RELEASE}1.1.1"), "-n", product::NAMESPACE], "").await?;
        audit.take_all(&spoke.client()).await?;
        product.restart_operator(&hub, Signal::TERM).await?;
        has_condition(&hub, &asking("1.1"), "InstallSucceeded", "Error", "1.1.1").await?;
        nothing_is_written(&mut audit, &spoke).await?;
        assert_eq!(state(&spoke, PLACE).await?, installed);
        // It is upgraded again, and to a newer one, to which a version without a patch moves.
        bundle(&folder, &["1.1.1", "1.2.0"])?;
        planned(&hub, &folder, 0, "stays").await?;
        product.restart_operator(&hub, Signal::TERM).await?;
        has_version(&hub, "1.1.1").await?;
        nothing_is_written(&mut audit, &spoke).await?;
        assert_eq!(state(&spoke, PLACE).await?, installed);
        apply(&hub, &asking("latest")).await?;
        has_version(&hub, "1.2.0").await?;
        // The archive has what is used.
        archived(&hub, "1.2.0").await?;

        // The hub is restored from a backup, with status and without.
        let installed = state(&spoke, PLACE).await?;
        for status in [Some("1.1.0"), None] {
            product.stop_operator(Signal::TERM)?;
            restore(&hub, &asking("1.1.0"), status).await?;
            audit.take_all(&spoke.client()).await?;
            product.start_operator(&hub).await?;
            let part = "the cluster has version 1.2.0, which is newer than the 1.1.0 of this resource";
            has_condition(&hub, &asking("1.1.0"), "VersionMigrationEligible", "Error", part).await?;
            nothing_is_written(&mut audit, &spoke).await?;
        }
        // Two minor versions behind: the webhook compares with the restored status.
        product.stop_operator(Signal::TERM)?;
        restore(&hub, &asking("1.0.0"), Some("1.0.0")).await?;
        product.start_operator(&hub).await?;
        let part = "the cluster has version 1.2.0, which is newer than the 1.0.0 of this resource";
        has_condition(&hub, &asking("1.0.0"), "VersionMigrationEligible", "Error", part).await?;
        nothing_is_written(&mut audit, &spoke).await?;
        assert!(apply(&hub, &asking("1.2.0")).await.is_err());
        let line = ["patch", "knativeserving", "knative-serving", "-n", TEAM, "--subresource=status", "--type=merge"];
        hub.kubectl(&[&line[..], &["-p", r#"{"status":{"version":null}}"#]].concat(), "").await?;
        apply(&hub, &asking("1.2.0")).await?;
        has_version(&hub, "1.2.0").await?;
        assert_eq!(state(&spoke, PLACE).await?, installed);
        // What the cluster has is right, also if the bundle is older.
        bundle(&folder, &["1.1.1"])?;
        product.stop_operator(Signal::TERM)?;
        restore(&hub, &asking("latest"), None).await?;
        product.start_operator(&hub).await?;
        has_version(&hub, "1.2.0").await?;
        assert_eq!(state(&spoke, PLACE).await?, installed);
        // Somebody asks for the older one now.
        apply(&hub, &asking("1.1.0")).await?;
        has_version(&hub, "1.1.0").await?;
        ready(&hub, &asking("1.1.0")).await?;
        delete(&hub, &asking("1.1.0")).await
    });
}
