//! From the last released operator to this one, back, and forth again, with its own chart and
//! binaries: no Pod of Knative restarts, and no field of a resource is lost.

use std::collections::BTreeMap;

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, NAMESPACE, Product};
use knative_operator_tests::remaining::metadata;
use knative_operator_tests::skip::{LAST_RELEASE, skip};
use knative_operator_tests::{Result, last_release, project, releases, tools};
use rustix::process::Signal;
use serde_json::{Value, json};

use super::TEAM;
use crate::go_state::current;
use crate::knative_fleet;
use crate::owners::{PLACE, uids};
use crate::support::{apply, delete, namespace, ready, run, serving};

/// Uid, generation and resource version of each object on a cluster, without those that change by
/// themselves.
async fn objects(cluster: &Cluster) -> Result<BTreeMap<String, [String; 3]>> {
    let all = metadata(&cluster.client()).await?;
    let text = |meta: kube::core::ObjectMeta| {
        let generation = meta.generation.unwrap_or_default().to_string();
        [meta.uid.unwrap_or_default(), generation, meta.resource_version.unwrap_or_default()]
    };
    Ok(all.into_iter().filter(|(id, _)| !id.starts_with("Node.")).map(|(id, meta)| (id, text(meta))).collect())
}

/// Specs and annotations of the custom resources on `hub`.
async fn specs(hub: &Cluster) -> Result<Vec<Value>> {
    let kinds = "knativeservings,knativeeventings,knativefleets";
    let all: Value = serde_json::from_str(&hub.kubectl(&["get", kinds, "-A", "-o", "json"], "").await?)?;
    let items = all["items"].as_array().into_iter().flatten();
    Ok(items.map(|item| json!([item["kind"], item["metadata"]["name"], item["spec"]])).collect())
}

/// A change that only the running operator can make: the resource is Ready in its newest
/// generation, and so is the fleet.
async fn is_reconciled(hub: &Cluster, resource: &mut Value, step: &str) -> Result<()> {
    resource["spec"]["config"] = json!({"features": {"kubernetes.podspec-nodeselector": step}});
    apply(hub, resource).await?;
    current(hub, resource).await?;
    knative_fleet::status(hub, step, |status| status.ready == 1).await.map(drop)
}

#[test]
fn last_release_is_upgraded_rolled_back_and_upgraded_again() {
    let Some(old) = last_release::images() else {
        return skip(LAST_RELEASE, &format!("{} is not set (make test-upgrade)", last_release::FOLDER));
    };
    run(async {
        let (single, member) = tokio::try_join!(Cluster::spoke("single"), Cluster::spoke("member"))?;
        let releases = releases::best();
        let hub = Cluster::hub("upgraded").await?;
        let mut values = product::values(&[]);
        values["knative_operator"]["fleet"] = json!({"enabled": true});
        values["knative_operator"]["operator_webhook"] =
            product::bundled(&hub)["knative_operator"]["operator_webhook"].clone();
        // In 0.2.0, its Pods of a critical class have no quota.
        values["knative_operator"]["operator_webhook"]["priorityClassName"] = json!("");
        let file = hub.dir().join("values.json");
        std::fs::write(&file, values.to_string())?;
        let file = file.display().to_string();
        let crd = std::fs::read_to_string(tools::control_plane("clusterprofiles.yaml")?)?;
        hub.kubectl(&["apply", "-f", "-"], &crd).await?;
        for place in [product::FLEET, TEAM, knative_fleet::PLACE] {
            namespace(&hub, place).await?;
        }
        let place = ["--namespace", NAMESPACE, "--wait", "--timeout", "2m"];
        let helm = async |arguments: &[&str]| hub.helm(&[arguments, &place].concat()).await;
        helm(&["install", "knative-operator", &last_release::chart(), "--create-namespace", "--values", &file]).await?;
        let mut product = Product::start(&hub, &releases, old.clone()).await?;
        for (name, spoke) in [("single", &single), ("member", &member)] {
            product::register(&hub, spoke, name).await?;
        }
        hub.object("clusterprofile", product::FLEET, "member").label(&json!({"env": "prod"})).await?;
        let mut resource = serving(TEAM, "knative-serving", Some("single"), &releases);
        let mut fleet =
            knative_fleet::fleet(&json!({"version": releases.serving, "ingress": {"kourier": {"enabled": true}}}));
        fleet["spec"]["rollout"] = json!({});
        // The last release doesn't know its fields.
        fleet["spec"]["removal"].take();
        apply(&hub, &resource).await?;
        apply(&hub, &fleet).await?;
        ready(&hub, &resource).await?;
        is_reconciled(&hub, &mut resource, "enabled").await?;
        let installed = [uids(&single, PLACE).await?, uids(&member, PLACE).await?];
        let chart = project().join("charts/knative-operator").display().to_string();
        let upgrade = ["upgrade", "knative-operator", &chart, "--values", &file];
        let rollback = ["rollback", "knative-operator", "1"];
        let own = || BTreeMap::new();
        for (step, change, images) in [
            ("disabled", &upgrade[..], own()),
            ("enabled", &rollback[..], old.clone()),
            ("disabled", &upgrade[..], own()),
        ] {
            let before = (objects(&single).await?, objects(&member).await?, specs(&hub).await?);
            helm(change).await?;
            product.stop_operator(Signal::TERM)?;
            drop(product);
            product = Product::start(&hub, &releases, images).await?;
            let after = specs(&hub).await?;
            assert_eq!(after, before.2, "fields are lost");
            is_reconciled(&hub, &mut resource, step).await?;
            let mut report = Vec::new();
            for (name, spoke, before) in [("single", &single, &before.0), ("member", &member, &before.1)] {
                let now = objects(spoke).await?;
                let changed = |field: usize| {
                    now.iter().filter(|(id, all)| before.get(*id).is_some_and(|b| b[field] != all[field])).count()
                };
                report.push(format!(
                    "{name}: {} objects, {} with another uid, {} with another generation, {} written, {} new, {} gone",
                    now.len(),
                    changed(0),
                    changed(1),
                    changed(2),
                    now.keys().filter(|id| !before.contains_key(*id)).count(),
                    before.keys().filter(|id| !now.contains_key(*id)).count(),
                ));
                assert_eq!(changed(0), 0, "{report:?}");
            }
            assert_eq!(uids(&single, PLACE).await?, installed[0], "restarted by {}", change[0]);
            assert_eq!(uids(&member, PLACE).await?, installed[1], "restarted by {}", change[0]);
            eprintln!("{}: no field lost, no Pod restarted; {}", change[0], report.join("; "));
        }
        delete(&hub, &resource).await?;
        delete(&hub, &fleet).await
    });
}
