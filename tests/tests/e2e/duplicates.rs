//! Several ClusterProfiles of one cluster: a fleet counts it once, and the webhook knows it.

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::releases;
use serde_json::json;

use crate::knative_fleet::{self, PLACE, children};
use crate::support::{apply, delete, eventing, has_condition, namespace, ready, run, serving};

#[test]
fn fleet_counts_a_cluster_once() {
    run(async {
        let releases = releases::small();
        let (hub, spoke, other) =
            tokio::try_join!(Cluster::hub("counted"), Cluster::spoke("counted-1"), Cluster::spoke("counted-2"))?;
        let plugins = tempfile::tempdir()?;
        let mut values = product::values(&[]);
        values["knative_operator"]["fleet"] = json!({"enabled": true});
        values["knative_operator"]["multicluster"]["refuseUsedNamespaces"] = json!(true);
        let _product = Product::create(&hub, &releases, values, plugins.path()).await?;
        product::register(&hub, &spoke, "a").await?;
        product::profile(&hub, "b", &product::access(&spoke, "a")).await?;
        for name in ["a", "b"] {
            hub.object("clusterprofile", FLEET, name).label(&json!({"env": "prod"})).await?;
        }
        namespace(&hub, PLACE).await?;
        let mut fleet = knative_fleet::fleet(&json!({"version": "1.0.0", "ingress": {"kourier": {"enabled": true}}}));
        fleet["spec"]["rollout"] = json!({});
        fleet["spec"]["removal"] = json!({"maxAtOnce": 1, "gracePeriodSeconds": 1});
        apply(&hub, &fleet).await?;
        let one = |status: &knative_operator_shared::api::fleet::KnativeFleetStatus| {
            let reasons: Vec<_> = status.attention.iter().map(|cluster| cluster.reason.as_str()).collect();
            status.clusters == 1 && status.ready == 1 && reasons == ["Duplicate"]
        };
        let status = knative_fleet::status(&hub, "one cluster, counted once", one).await?;
        eprintln!("{:?}", status.attention);
        let duplicate = status.attention[0].cluster.name.clone();
        let owner = if duplicate == "a" { "b" } else { "a" };
        assert!(status.attention[0].message.contains(&format!("{FLEET}/{owner}")), "{:?}", status.attention);
        assert_eq!(children(&hub).await?.len(), 2);

        // The one that is counted leaves: the other one installs instead.
        hub.object("clusterprofile", FLEET, owner).label(&json!({"env": null})).await?;
        knative_fleet::status(&hub, "the other one", |status| {
            status.clusters == 1 && status.ready == 1 && status.attention.is_empty()
        })
        .await?;
        assert_eq!(children(&hub).await?.len(), 1);

        // The webhook knows that both are one cluster.
        let known = eventing(PLACE, "known", Some(owner), &releases);
        apply(&hub, &known).await?;
        ready(&hub, &known).await?;
        let second = serving(PLACE, "second", Some(owner), &releases);
        let (well, output) = hub.kubectl_output(&["apply", "-f", "-"], &second.to_string()).await;
        assert!(!well && output.contains("which is the same cluster"), "{output}");

        // A namespace with workloads of others is refused, as the settings say.
        product::register(&hub, &other, "used").await?;
        namespace(&other, "knative-serving").await?;
        let binding =
            ["create", "rolebinding", "readers", "-n", "knative-serving", "--clusterrole=view", "--group=all"];
        other.kubectl(&binding, "").await?;
        let refused = serving(PLACE, "used", Some("used"), &releases);
        apply(&hub, &refused).await?;
        has_condition(&hub, &refused, "InstallSucceeded", "Error", "RoleBinding readers").await?;
        other.object("rolebinding", "knative-serving", "readers").delete().await?;
        ready(&hub, &refused).await?;
        delete(&hub, &refused).await?;
        other.kubectl(&["get", "namespace", "knative-serving"], "").await.map(drop)
    });
}
