//! What only real nodes show: a Knative Service answers, also while Knative changes.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::real::load::{self, Outcome};
use knative_operator_tests::real::product::ready;
use knative_operator_tests::real::traffic::{self, ANSWER};
use kube::api::{DeleteParams, ListParams};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::{NAME, NAMESPACE};

/// Interval of looks at Pods.
const INTERVAL: Duration = Duration::from_millis(250);

/// A Knative Service on `spoke` is scaled to zero, and answers; returns how.
pub async fn from_zero(spoke: &Cluster) -> Result<String> {
    let annotations = json!({"autoscaling.knative.dev/window": "6s"});
    spoke.kubectl(&["apply", "-f", "-"], &traffic::service("hello", &annotations).to_string()).await?;
    // They are scaled to zero meanwhile.
    load::create(spoke).await?;
    ready(spoke, "ksvc/hello", "default").await?;
    traffic::scaled_to_zero(spoke, "hello").await?;
    let gateway = traffic::gateway(spoke).await?;
    let (body, time, failed) = traffic::until_answer(gateway, &traffic::host("hello"), ANSWER).await?;
    let others = if failed == 0 { String::new() } else { format!(" after {failed} other answers") };
    Ok(format!("HTTP 200, {:?}, from zero in {:.2} s{others}", body.trim(), time.as_secs_f64()))
}

/// Deletes the Deployment of Knative's controller on `spoke` while requests flow, until the
/// operator has put it back.
pub async fn repaired(spoke: &Cluster) -> Result<Outcome> {
    let gateway = load::services(spoke).await?;
    let place = ["deployment", "controller", "-n", NAMESPACE];
    load::during(gateway, async {
        spoke.kubectl(&[&["delete"][..], &place].concat(), "").await?;
        spoke.kubectl(&[&["wait"][..], &place, &["--for=create", "--timeout=30s"]].concat(), "").await?;
        spoke.kubectl(&[&["rollout", "status"][..], &place, &["--timeout=60s"]].concat(), "").await.map(drop)
    })
    .await
}

/// Changes the resource on `hub` to `spec`, with another version, while requests flow on `spoke`,
/// until all Pods of Knative are those of the new one.
pub async fn upgraded(hub: &Cluster, spoke: &Cluster, spec: &Value) -> Result<Outcome> {
    let gateway = traffic::gateway(spoke).await?;
    let patch = json!({"spec": spec}).to_string();
    let version = spec["version"].as_str().unwrap_or_default();
    load::during(gateway, async {
        let place = ["knativeserving", NAME, "-n", NAMESPACE];
        hub.kubectl(&[&["patch"][..], &place, &["--type=merge", "-p", &patch]].concat(), "").await?;
        let installed = format!("--for=jsonpath={{.status.version}}={version}");
        hub.kubectl(&[&["wait"][..], &place, &[&installed, "--timeout=100s"]].concat(), "").await?;
        ready(hub, &format!("knativeserving/{NAME}"), NAMESPACE).await
    })
    .await
}

/// Deletes the Knative Services: an installation that has some is not deleted.
pub async fn deleted(spoke: &Cluster) -> Result<()> {
    spoke.kubectl(&["delete", "ksvc", "--all", "-n", "default", "--timeout=60s"], "").await.map(drop)
}

/// Waits for no Pod in `namespace` on `spoke` that is being deleted. They would drain: activator
/// and webhook for 45 s after their last request, but no Knative Service is left to get one.
pub async fn ended(spoke: &Cluster, namespace: &str) -> Result<()> {
    let (pods, at_once) = (Api::<Pod>::namespaced(spoke.client(), namespace), DeleteParams::default().grace_period(0));
    loop {
        let left = pods.list(&ListParams::default()).await?.items;
        if left.is_empty() {
            return Ok(());
        }
        // Deployments would replace the others.
        for pod in left.iter().filter(|pod| pod.metadata.deletion_timestamp.is_some()) {
            match pods.delete(&pod.name_any(), &at_once).await {
                Err(kube::Error::Api(status)) if status.code == 404 => {}
                deleted => drop(deleted?),
            }
        }
        tokio::time::sleep(INTERVAL).await;
    }
}
