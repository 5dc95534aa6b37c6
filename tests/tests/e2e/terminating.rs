//! A namespace on a spoke that is deleted.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Namespace;
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::measure::Audit;
use knative_operator_tests::product::{self, Product, SPOKE_USER, values};
use knative_operator_tests::remaining::objects;
use knative_operator_tests::{Result, releases};
use kube::Api;
use serde_json::json;

use crate::support::{INSTALL, apply, condition, delete, namespace, nothing_left, ready, resource, run, status};

const PLACE: &str = "knative-serving";

async fn uid(spoke: &Cluster) -> Result<Option<String>> {
    Ok(Api::<Namespace>::all(spoke.client()).get(PLACE).await?.metadata.uid)
}

#[test]
fn deleted_namespace_is_reported_and_restored() {
    run(async {
        let (hub, spoke) = tokio::try_join!(Cluster::hub("terminating"), Cluster::spoke("terminated"))?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let _product = Product::create(&hub, &releases, values(&[]), plugins.path()).await?;
        product::register(&hub, &spoke, "spoke").await?;
        namespace(&hub, "terminating").await?;
        let serving =
            resource(Component::Serving, "terminating", "ks", Some("spoke"), json!({"version": releases.serving}));
        let before = objects(&spoke.client()).await?;
        apply(&hub, &serving).await?;
        ready(&hub, &serving).await?;

        // A finalizer keeps it terminating for as long as the test needs.
        let retained = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "retained", "namespace": PLACE, "finalizers": ["example.com/hold"]}});
        apply(&spoke, &retained).await?;
        let (old, deleted) = (uid(&spoke).await?, Instant::now());
        spoke.object("namespace", "", PLACE).start_deletion().await?;
        let unready =
            |s: &knative_operator_shared::api::KnativeStatus| condition(s, "Ready").is_some_and(|c| c.status != "True");
        status(&hub, &serving, INSTALL, "not Ready", unready).await?;
        eprintln!("reported after {:?}", deleted.elapsed());
        let words = "namespace knative-serving on fleet-system/spoke is being deleted; waiting";
        let waits = |s: &knative_operator_shared::api::KnativeStatus| {
            condition(s, "InstallSucceeded").is_some_and(|c| {
                c.reason.as_deref() == Some("NamespaceTerminating")
                    && c.message.as_deref().is_some_and(|m| m.contains(words))
            })
        };
        status(&hub, &serving, INSTALL, "waiting for the namespace", waits).await?;
        // The operator waits, instead of failing object by object.
        let mut audit = Audit::of(&spoke, SPOKE_USER)?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        let tried = audit.take()?.iter().filter(|request| request.writes()).count();
        assert!(tried <= 3, "{tried} writes while the namespace terminates");
        let reported = status(&hub, &serving, INSTALL, "still waiting", waits).await?;
        assert!(
            reported.conditions.iter().all(|c| !c.message.as_deref().unwrap_or_default().contains("forbidden")),
            "{reported:?}"
        );

        let released = Instant::now();
        spoke
            .kubectl(
                &[
                    "patch",
                    "configmap",
                    "retained",
                    "-n",
                    PLACE,
                    "--type=merge",
                    "-p",
                    r#"{"metadata":{"finalizers":null}}"#,
                ],
                "",
            )
            .await?;
        ready(&hub, &serving).await?;
        eprintln!("Ready again after {:?}", released.elapsed());
        assert_ne!(uid(&spoke).await?, old);
        delete(&hub, &serving).await?;
        nothing_left(&spoke, &before).await
    });
}
