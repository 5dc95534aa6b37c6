//! Runs the commands of `docs/operate/disaster-recovery.md`: a hub is lost, and a new one
//! continues.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::releases::{self, Releases};
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::document::{Shell, document, nothing_installed};
use crate::knative_fleet;
use crate::support::{apply, eventing, namespace, ready, run, serving};

const NAMESPACES: [&str; 2] = ["knative-serving", "knative-eventing"];

/// Uids of the Pods of Knative on `spokes`, without those of Jobs.
async fn pods(spokes: &[&Cluster]) -> Result<BTreeMap<String, String>> {
    let mut uids = BTreeMap::new();
    for (number, spoke) in spokes.iter().enumerate() {
        for place in NAMESPACES {
            for pod in Api::<Pod>::namespaced(spoke.client(), place).list(&ListParams::default()).await? {
                if pod.owner_references().iter().all(|owner| owner.kind != "Job") {
                    uids.insert(format!("{number} {place}/{}", pod.name_any()), pod.uid().unwrap_or_default());
                }
            }
        }
    }
    assert!(uids.len() > 3, "not installed: {uids:?}");
    Ok(uids)
}

async fn hub(name: &str, releases: &Releases, spokes: &[&Cluster]) -> Result<(Cluster, Product)> {
    let (hub, plugins) = (Cluster::hub(name).await?, tempfile::tempdir()?);
    let mut values = product::values(&[]);
    values["knative_operator"]["fleet"] = json!({"enabled": true});
    values["knative_operator"]["hubName"] = json!(name);
    let product = Product::install(&hub, releases, values, plugins.path()).await?;
    for (spoke, name) in spokes.iter().zip(["single", "fleet"]) {
        product::register(&hub, spoke, name).await?;
    }
    hub.object("clusterprofile", FLEET, "fleet").label(&json!({"env": "prod"})).await?;
    for place in NAMESPACES.into_iter().chain([knative_fleet::PLACE]) {
        namespace(&hub, place).await?;
    }
    Ok((hub, product))
}

#[test]
fn new_hub_continues_without_a_restart() {
    run(async {
        let (single, other) = tokio::try_join!(Cluster::spoke("recovery-1"), Cluster::spoke("recovery-2"))?;
        let (spokes, releases) = ([&single, &other], releases::small());
        let mut fleet =
            knative_fleet::fleet(&json!({"version": releases.serving, "ingress": {"kourier": {"enabled": true}}}));
        fleet["spec"]["rollout"] = json!({});
        let resources = [
            serving("knative-serving", "knative-serving", Some("single"), &releases),
            eventing("knative-eventing", "knative-eventing", Some("single"), &releases),
            fleet,
        ];
        let (installed, uid) = {
            let (old, _product) = hub("old-hub", &releases, &spokes).await?;
            for resource in &resources {
                apply(&old, resource).await?;
            }
            for resource in &resources[..2] {
                ready(&old, resource).await?;
            }
            knative_fleet::status(&old, "ready", |status| status.ready == 1).await?;
            let uid = old.kubectl(&["get", "namespace", "kube-system", "-o", "jsonpath={.metadata.uid}"], "").await?;
            (pods(&spokes).await?, uid)
        };
        // The old hub is gone, and the resources come from Git.
        let (new, _product) = hub("new-hub", &releases, &spokes).await?;
        let mut shell = Shell::new(&[("hub", &new), ("spoke", &single)], &json!({}))?;
        let list: Value = json!({"apiVersion": "v1", "kind": "List", "items": resources});
        std::fs::write(shell.folder().join("resources.yaml"), list.to_string())?;
        std::fs::write(shell.folder().join("variables"), format!("OLD_HUB={uid}\n"))?;
        let mut printed = String::new();
        for block in document("docs/operate/disaster-recovery.md")? {
            if block.script.contains("take-over --all-namespaces") {
                // The fleet creates its resource meanwhile.
                knative_fleet::status(&new, "a cluster", |status| status.clusters == 1).await?;
            }
            printed += &shell.run(&block.script, nothing_installed).await?;
        }
        assert!(printed.contains("of hub \"old-hub\"") && printed.contains("TookOver"), "{printed}");
        knative_fleet::status(&new, "ready", |status| status.ready == 1).await?;
        let continued = pods(&spokes).await?;
        eprintln!("{} Pods before, {} after", installed.len(), continued.len());
        assert_eq!(continued, installed, "Pods were restarted");
        Ok(())
    });
}
