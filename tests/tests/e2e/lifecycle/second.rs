//! A second operator in another namespace of the cluster.

use std::time::Duration;

use jiff::Timestamp;
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::{Result, project, releases, tools};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{apply, has_condition, logged, namespace, nothing_to_install, resource, run};

/// Why the operator ends.
const ENDS: &str = "the operator in namespace second manages this cluster";

/// The Lease of an operator in `second`, which it acquired long ago.
fn lease() -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "knative-operator", "namespace": "second", "labels": {"operator.knative.dev/shards": "1"}},
        "spec": {"holderIdentity": "other", "leaseDurationSeconds": 15, "acquireTime": "2026-01-01T00:00:00.000000Z",
            "renewTime": format!("{:.6}", Timestamp::now())}})
}

#[test]
fn second_operator_ends_while_the_first_leads() {
    run(async {
        let (releases, plugins) = (releases::small(), tempfile::tempdir()?);
        let hub = Cluster::hub("two-operators").await?;
        let mut product = Product::install(&hub, &releases, product::values(&[]), plugins.path()).await?;
        namespace(&hub, "second").await?;
        // A Lease of anybody else stops no operator.
        apply(&hub, &lease()).await?;
        restart(&hub, &mut product).await?;
        let asked = resource(Component::Eventing, "second", "knative-eventing", None, nothing_to_install());
        apply(&hub, &asked).await?;
        has_condition(&hub, &asked, "InstallSucceeded", "Error", "nothing/there").await?;

        // With what `helm template` makes for that namespace, both operators have permissions.
        let binding = binding(&hub, "second").await?;
        apply(&hub, &binding).await?;
        apply(&hub, &lease()).await?;
        let ends = async {
            match restart(&hub, &mut product).await {
                Ok(()) => logged(&product.operator.process, ENDS).await,
                // It is not Ready meanwhile.
                Err(error) if error.to_string().contains(ENDS) => Ok(()),
                Err(error) => Err(error),
            }
        };
        let renewed = async {
            loop {
                tokio::time::sleep(Duration::from_secs(1)).await;
                apply(&hub, &lease()).await?;
            }
        };
        tokio::select! {
            ended = ends => ended,
            failed = renewed => failed,
        }
    });
}

/// The operator's ClusterRoleBinding of the chart in `namespace`.
async fn binding(hub: &Cluster, namespace: &str) -> Result<Value> {
    let chart = project().join("charts/knative-operator").display().to_string();
    let values = hub.dir().join("values.json").display().to_string();
    let arguments = ["template", "second", &chart, "--namespace", namespace, "--values", &values];
    let manifest = hub.helm(&[&arguments[..], &tools::OFFLINE[..]].concat()).await?;
    let mut all = serde_saphyr::from_multiple::<Value>(&manifest)?.into_iter();
    let binding = all.find(|o| o["kind"] == "ClusterRoleBinding" && o["roleRef"]["name"] == "knative-operator");
    binding.ok_or_else(|| "the chart has no binding of the operator".into())
}

async fn restart(hub: &Cluster, product: &mut Product) -> Result<()> {
    product.stop_operator(Signal::TERM)?;
    product.start_operator(hub).await
}
