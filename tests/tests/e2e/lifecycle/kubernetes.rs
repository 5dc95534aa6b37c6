//! Kubernetes moves on: control planes are upgraded, and API versions are removed.

use std::path::PathBuf;

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::remaining::objects;
use knative_operator_tests::skip::{OTHER_KUBERNETES, skip};
use knative_operator_tests::{Result, releases};
use rustix::process::Signal;
use serde_json::json;

use super::{TEAM, hub};
use crate::go_state::current;
use crate::owners::{ANCHOR, PLACE, uids};
use crate::support::{apply, delete, gone, jobs_done, nothing_left, ready, run, serving};

/// The variable with the folders of the newer control planes, in the order of the upgrades.
const FOLDERS: &str = "KUBERNETES_UPGRADES";

#[test]
fn removed_api_version_leaves_nothing_behind() {
    run(async {
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let spoke = Cluster::spoke("moved-on").await?;
        let (hub, mut product) = hub("moving", &releases, plugins.path(), &[("spoke", &spoke)]).await?;
        let before = objects(&spoke.client()).await?;
        let resource = serving(TEAM, "knative-serving", Some("spoke"), &releases);
        apply(&hub, &resource).await?;
        ready(&hub, &resource).await?;
        jobs_done(&spoke, PLACE, ANCHOR).await?;
        let images = ["get", "images.caching.internal.knative.dev", "-A", "-o", "name"];
        assert!(!spoke.kubectl(&images, "").await?.is_empty(), "there is no Image");

        // While no operator runs, the definition serves another version only.
        product.stop_operator(Signal::KILL)?;
        let schema = json!({"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": true}});
        let version =
            |name: &str, served: bool| json!({"name": name, "served": served, "storage": served, "schema": schema});
        let versions = json!({"spec": {"versions": [version("v1alpha1", false), version("v1beta1", true)]}});
        let line = ["patch", "crd", "images.caching.internal.knative.dev", "--type=merge", "-p", &versions.to_string()];
        spoke.kubectl(&line, "").await?;
        hub.stored(&resource).start_deletion().await?;
        product.start_operator(&hub).await?;
        gone(&hub, &resource).await?;
        nothing_left(&spoke, &before).await
    });
}

/// Changes a setting, and waits until the newest generation is Ready.
async fn is_reconciled(hub: &Cluster, resource: &serde_json::Value, value: &str) -> Result<()> {
    let mut changed = resource.clone();
    changed["spec"]["config"] = json!({"features": {"kubernetes.podspec-nodeselector": value}});
    apply(hub, &changed).await?;
    current(hub, resource).await
}

#[test]
fn control_planes_are_upgraded_in_the_middle() {
    let Some(folders) = std::env::var_os(FOLDERS).filter(|folders| !folders.is_empty()) else {
        return skip(OTHER_KUBERNETES, &format!("{FOLDERS} is not set (make test-kubernetes-upgrade)"));
    };
    run(async {
        let (releases, plugins) = (releases::best(), tempfile::tempdir()?);
        let mut spoke = Cluster::spoke("older").await?;
        let (mut hub, _product) = hub("older-hub", &releases, plugins.path(), &[("spoke", &spoke)]).await?;
        let before = objects(&spoke.client()).await?;
        let resource = serving(TEAM, "knative-serving", Some("spoke"), &releases);
        apply(&hub, &resource).await?;
        // In the middle of the installation, then when it is Ready.
        let mut installed = None;
        for (number, folder) in std::env::split_paths(&folders).enumerate() {
            spoke.upgrade(&folder).await?;
            hub.upgrade(&folder).await?;
            is_reconciled(&hub, &resource, if number % 2 == 0 { "enabled" } else { "allowed" }).await?;
            spoke.check()?;
            hub.check()?;
            let now = uids(&spoke, PLACE).await?;
            let was = installed.get_or_insert_with(|| now.clone());
            assert_eq!(*was, now, "restarted by {}", PathBuf::from(&folder).display());
            eprintln!("{}: {} Deployments and Pods, none restarted", version(&spoke).await?, now.len());
        }
        delete(&hub, &resource).await?;
        // The newer version may have other objects of its own, in its own namespaces.
        let own = objects(&spoke.client()).await?.into_iter().filter(|object| !object.contains(PLACE));
        nothing_left(&spoke, &own.chain(before).collect()).await
    });
}

async fn version(cluster: &Cluster) -> Result<String> {
    Ok(cluster.client().apiserver_version().await?.git_version)
}
