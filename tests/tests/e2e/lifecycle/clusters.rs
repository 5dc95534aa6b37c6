//! A ClusterProfile whose server becomes another cluster.

use knative_operator_shared::api::KnativeStatus;
use knative_operator_shared::label::TRIGGER;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{http, product, releases};
use serde_json::{Value, json};

use super::{TEAM, hub, share_secret};
use crate::owners::{PLACE, identity, state};
use crate::support::{
    INSTALL, apply, condition, delete, has_condition, has_event, namespace, nothing_left, ready, run, serving, status,
};

const CONFIGURATIONS: [&str; 2] = [
    "validatingwebhookconfiguration/validation.operator.knative.dev",
    "mutatingwebhookconfiguration/defaulting.operator.knative.dev",
];
const FORMER: &str = "operator.knative.dev/former-clusters";

/// A Deployment that is not part of an installation.
fn theirs() -> Value {
    let labels = json!({"app": "theirs"});
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "theirs", "namespace": PLACE},
        "spec": {
            "replicas": 0, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "a", "image": "example.com/a"}]}},
        },
    })
}

/// The uids of the former clusters in `status`.
fn former(status: &KnativeStatus) -> Vec<String> {
    let all: Value =
        status.annotations.get(FORMER).and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
    let uids = all.as_array().into_iter().flatten().filter_map(|cluster| cluster["uid"].as_str());
    uids.map(str::to_owned).collect()
}

#[test]
fn installation_on_a_former_cluster_is_not_forgotten() {
    run(async {
        let (old, new) = tokio::try_join!(Cluster::spoke("former"), Cluster::spoke("latter"))?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let spokes = [("spoke", &old), ("other", &new)];
        let (hub, mut product) = hub("mover", &releases, plugins.path(), &spokes).await?;
        share_secret(&hub, "other", "spoke").await?;
        let before = [objects(&old.client()).await?, objects(&new.client()).await?];
        // A version that could not follow the one of another cluster.
        let mut resource = serving(TEAM, "knative-serving", Some("spoke"), &releases);
        resource["spec"]["version"] = json!("1.0.0");
        apply(&hub, &resource).await?;
        ready(&hub, &resource).await?;
        let installed = state(&old, PLACE).await?;

        // Knative of somebody else, which is left unchanged.
        namespace(&new, PLACE).await?;
        apply(&new, &theirs()).await?;
        product::status(&hub, "spoke", "True", &product::access(&new, "other")).await?;
        let uid = identity(&old).await?;
        has_event(&hub, TEAM, "ClusterChanged", &uid).await?;
        has_condition(&hub, &resource, "InstallSucceeded", "Occupied", "Deployment theirs").await?;
        assert!(new.kubectl(&["get", "deployment", "controller", "-n", PLACE], "").await.is_err());
        new.object("namespace", "", PLACE).delete().await?;
        let trigger = format!("{TRIGGER}=1");
        hub.kubectl(&["annotate", "knativeserving", "knative-serving", "-n", TEAM, &trigger], "").await?;
        let is_moved = |s: &KnativeStatus| {
            former(s) == [uid.as_str()] && condition(s, "Ready").is_some_and(|c| c.status == "True")
        };
        status(&hub, &resource, INSTALL, "Ready on the new cluster", is_moved).await?;
        assert_eq!(state(&old, PLACE).await?, installed, "the former cluster was changed");
        state(&new, PLACE).await?;
        let (_, metrics) = http::get(product.metrics(), "/metrics").await?;
        assert!(metrics.contains("knative_operator_orphaned_total{kind=\"KnativeServing\""), "{metrics}");

        // The deletion says what is left, and the way that it names removes it.
        delete(&hub, &resource).await?;
        has_event(&hub, TEAM, "Orphaned", &uid).await?;
        nothing_left(&new, &before[1]).await?;
        assert_eq!(state(&old, PLACE).await?, installed);
        product::status(&hub, "spoke", "True", &product::access(&old, "spoke")).await?;
        apply(&hub, &resource).await?;
        ready(&hub, &resource).await?;
        delete(&hub, &resource).await?;
        nothing_left(&old, &before[0]).await?;

        // Without the operator's namespace, nothing blocks requests, also if no webhook runs when
        // it is deleted.
        product.webhook = None;
        hub.object("namespace", "", product::NAMESPACE).start_deletion().await?;
        for configuration in CONFIGURATIONS {
            hub.kubectl(&["wait", "--for=delete", configuration, "--timeout=5m"], "").await?;
        }
        apply(&hub, &resource).await
    });
}
