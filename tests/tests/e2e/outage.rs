//! The webhook goes away; a spoke goes away, and comes back.

use std::time::{Duration, Instant};

use knative_operator_shared::api::KnativeServing;
use knative_operator_tests::cluster::{Cluster, objects};
use knative_operator_tests::product::{self, Product, values};
use knative_operator_tests::{releases, wait};
use kube::Api;

use crate::support::{apply, condition, namespace, nothing_left, ready, run, says, serving, status};

#[test]
fn a_webhook_that_is_down_holds_up_little_and_a_spoke_that_goes_away_is_told() {
    run(async {
        let (hub, mut spoke) = tokio::try_join!(Cluster::hub("outage"), Cluster::spoke("outage-spoke"))?;
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let mut product = Product::install(&hub, &releases, values(&[]), plugins.path()).await?;
        product::register(&hub, &spoke, "spoke").await?;
        namespace(&hub, "outage").await?;
        let before = objects(&spoke.client()).await?;
        let wanted = serving("outage", "ks", Some("spoke"), &releases);
        apply(&hub, &wanted).await?;
        ready(&hub, &wanted).await?;

        // The webhook dies: what it would judge is refused, what it would not goes on.
        product.webhook = None;
        hub.kubectl(&["label", "knativeserving", "ks", "-n", "outage", "a=b"], "").await?;
        let patch = r#"{"spec":{"config":{"network":{"a":"b"}}}}"#;
        let said =
            hub.kubectl(&["patch", "knativeserving", "ks", "-n", "outage", "--type=merge", "-p", patch], "").await.unwrap_err().to_string();
        assert!(said.contains("failed calling webhook"), "{said}");

        // Its API server dies: nothing is called True that nobody can know.
        spoke.stop_apiserver();
        let died = Instant::now();
        says(&hub, &wanted, "TargetClusterResolved", "RemoteClusterUnreachable", "can't be reached").await?;
        eprintln!("seen after {:.1?}", died.elapsed());
        let told = status(&hub, &wanted, Duration::from_secs(15), "told", |_| true).await?;
        for type_ in ["Ready", "InstallSucceeded", "DeploymentsAvailable"] {
            assert_ne!(condition(&told, type_).map(|c| c.status.as_str()), Some("True"), "{type_}");
        }
        assert_eq!(told.version.as_deref(), Some(releases.serving), "what was installed last is still told");

        // It returns: all is true again, and nothing was written that was not needed.
        let repairs = |log: &str| log.matches("\"DriftRepaired\"").count();
        let repaired = repairs(&product.operator.process.log());
        spoke.start_apiserver().await?;
        let returned = Instant::now();
        ready(&hub, &wanted).await?;
        eprintln!("true again after {:.1?}", returned.elapsed());
        assert_eq!(repairs(&product.operator.process.log()), repaired);

        // A deletion waits for it, and says so, and how to let go.
        spoke.stop_apiserver();
        hub.kubectl(&["delete", "knativeserving", "ks", "-n", "outage", "--wait=false"], "").await?;
        says(&hub, &wanted, "TargetClusterResolved", "RemoteClusterUnreachable", "the finalizer waits for the cluster").await?;
        spoke.start_apiserver().await?;
        let resources = Api::<KnativeServing>::namespaced(hub.client(), "outage");
        wait::until(&resources, "ks", Duration::from_secs(60), "gone", |s| s.is_none()).await?;
        nothing_left(&spoke, &before).await
    });
}
