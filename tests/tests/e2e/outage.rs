//! Outages of the webhook and of a spoke, and recovery.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_shared::api::{KnativeServing, KnativeStatus};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product, values};
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, http, releases, wait};
use kube::Api;
use serde_json::{Value, json};

use crate::support::{
    apply, condition, has_condition, has_event, namespace, nothing_left, ready, run, serving, status,
};

/// Within which a revoked credential is reported, though nobody changes anything. Documents say a
/// minute, the rest is for a loaded machine; five watches are renewed within four.
const REVOKED: Duration = Duration::from_secs(180);

#[test]
fn outages_of_webhook_and_spoke_are_reported() {
    run(async {
        let (hub, mut spoke) = tokio::try_join!(Cluster::hub("outage"), Cluster::spoke("outage-spoke"))?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let mut product = Product::create(&hub, &releases, values(&[]), plugins.path()).await?;
        product::register(&hub, &spoke, "spoke").await?;
        namespace(&hub, "outage").await?;
        let before = objects(&spoke.client()).await?;
        let wanted = serving("outage", "ks", Some("spoke"), &releases);
        apply(&hub, &wanted).await?;
        ready(&hub, &wanted).await?;

        // The webhook stops: requests that it validates are refused, others are admitted.
        product.webhook = None;
        hub.object("knativeserving", "outage", "ks").label(&json!({"a": "b"})).await?;
        let patch = r#"{"spec":{"config":{"network":{"a":"b"}}}}"#;
        let output = hub
            .kubectl(&["patch", "knativeserving", "ks", "-n", "outage", "--type=merge", "-p", patch], "")
            .await
            .unwrap_err()
            .to_string();
        assert!(output.contains("failed calling webhook"), "{output}");

        // Its API server stops: no condition that can't be verified is True.
        spoke.stop_apiserver();
        let died = Instant::now();
        has_condition(&hub, &wanted, "TargetClusterResolved", "RemoteClusterUnreachable", "is unreachable").await?;
        eprintln!("detected after {:.1?}", died.elapsed());
        let reported = status(&hub, &wanted, wait::LIMIT, "present", |_| true).await?;
        for type_ in ["Ready", "InstallSucceeded", "DeploymentsAvailable"] {
            assert_ne!(condition(&reported, type_).map(|c| c.status.as_str()), Some("True"), "{type_}");
        }
        assert_eq!(reported.version.as_deref(), Some(releases.serving), "the status keeps the installed version");

        // It is back: the conditions are True again, without unnecessary writes.
        let repairs = |log: &str| log.matches("\"DriftRepaired\"").count();
        let repaired = repairs(&product.operator.process.log());
        spoke.start_apiserver().await?;
        let returned = Instant::now();
        ready(&hub, &wanted).await?;
        eprintln!("resolved again after {:.1?}", returned.elapsed());
        assert_eq!(repairs(&product.operator.process.log()), repaired);

        // Its token is revoked at rest, and replaced in the Secret.
        product.start_webhook(&hub).await?;
        revoked(&hub, &spoke, &wanted).await?;

        // A deletion waits for it, and reports how to continue without it.
        spoke.stop_apiserver();
        hub.object("knativeserving", "outage", "ks").start_deletion().await?;
        has_condition(
            &hub,
            &wanted,
            "TargetClusterResolved",
            "RemoteClusterUnreachable",
            "the deletion has been waiting for the cluster since",
        )
        .await?;
        spoke.start_apiserver().await?;
        let resources = Api::<KnativeServing>::namespaced(hub.client(), "outage");
        wait::until(&resources, "ks", wait::LIMIT, "gone", |s| s.is_none()).await?;
        nothing_left(&spoke, &before).await?;

        // Or the resource is orphaned, and the remaining objects are reported.
        apply(&hub, &wanted).await?;
        ready(&hub, &wanted).await?;
        spoke.stop_apiserver();
        hub.object("knativeserving", "outage", "ks").start_deletion().await?;
        has_condition(&hub, &wanted, "TargetClusterResolved", "RemoteClusterUnreachable", "on-unreachable=orphan")
            .await?;
        let annotate = |value: &str| format!("operator.knative.dev/on-unreachable={value}");
        let refused = hub
            .kubectl(&["annotate", "knativeserving", "ks", "-n", "outage", &annotate("forget")], "")
            .await
            .unwrap_err()
            .to_string();
        assert!(refused.contains("unknown value \"forget\"; set it to \"orphan\""), "{refused}");
        hub.kubectl(&["annotate", "knativeserving", "ks", "-n", "outage", &annotate("orphan")], "").await?;
        wait::until(&resources, "ks", wait::LIMIT, "deleted", |s| s.is_none()).await?;
        has_event(&hub, "outage", "Orphaned", "Left on the cluster").await?;
        let (_, metrics) = http::get(product.metrics(), "/metrics").await?;
        assert!(
            metrics
                .contains("knative_operator_orphaned_total{kind=\"KnativeServing\",cluster=\"fleet-system/spoke\"} 1"),
            "{metrics}"
        );
        Ok(())
    });
}

/// Its token is revoked while nothing happens: the renewal of one of the watches finds out. With a
/// new token in the Secret, everything goes on.
async fn revoked(hub: &Cluster, spoke: &Cluster, wanted: &Value) -> Result<()> {
    spoke.object("serviceaccount", "kube-system", "knative-hub").delete().await?;
    let revoked = Instant::now();
    let refused = "refused the credential of the access provider secretreader";
    let seen = |s: &KnativeStatus| {
        let resolved = condition(s, "TargetClusterResolved");
        resolved.is_some_and(|c| {
            c.reason.as_deref() == Some("RemoteClusterUnauthorized")
                && c.message.as_deref().is_some_and(|m| m.contains(refused))
        })
    };
    status(hub, wanted, REVOKED, "refused", seen).await?;
    eprintln!("the revoked token was reported after {:.1?}", revoked.elapsed());

    let patch = r#"{"spec":{"config":{"defaults":{"rotated":"yes"}}}}"#;
    hub.kubectl(&["patch", "knativeserving", "ks", "-n", "outage", "--type=merge", "-p", patch], "").await?;
    spoke.kubectl(&["create", "serviceaccount", "knative-hub", "-n", "kube-system"], "").await?;
    let token = spoke.token("kube-system", "knative-hub", 24 * 3600).await?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "spoke", "namespace": product::NAMESPACE}, "stringData": {"token": token}});
    apply(hub, &secret).await?;
    let replaced = Instant::now();
    let maps = Api::<ConfigMap>::namespaced(spoke.client(), "knative-serving");
    let there = |m: Option<&ConfigMap>| {
        m.and_then(|m| m.data.as_ref()).is_some_and(|d| d.get("rotated").is_some_and(|v| v == "yes"))
    };
    wait::until(&maps, "config-defaults", wait::LIMIT, "changed", there).await?;
    eprintln!("with the new token after {:.1?}", replaced.elapsed());
    ready(hub, wanted).await.map(drop)
}
