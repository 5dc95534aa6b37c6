//! What all tests share.

use std::time::Duration;

use k8s_openapi::api::core::v1::Event;
use knative_operator_tests::cluster::Cluster;
pub use knative_operator_tests::real::Report;
use knative_operator_tests::real::product::ready;
pub use knative_operator_tests::real::traffic::ANSWER;
use knative_operator_tests::real::{self, product};
use knative_operator_tests::{Result, releases};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::healthy::Healthy;

/// Namespace of Knative Serving and of its resource.
pub const NAMESPACE: &str = "knative-serving";
/// The resource.
pub const SERVING: &str = "knativeserving/knative-serving";

pub fn run(test: impl Future<Output = Result<()>>) {
    if !real::available() {
        return;
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Err(error) = runtime.block_on(test) {
        panic!("{error:?}");
    }
}

/// Applies the KnativeServing with `spec` on `hub`.
pub async fn apply(hub: &Cluster, spec: &Value) -> Result<()> {
    let meta = json!({"name": "knative-serving", "namespace": NAMESPACE});
    let cr =
        json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing", "metadata": meta, "spec": spec});
    hub.kubectl(&["apply", "-f", "-"], &cr.to_string()).await.map(drop)
}

/// Applies a KnativeServing on `hub`, until it is Ready on the cluster that `reference` names.
pub async fn install(report: &mut Report, hub: &Cluster, reference: &Value) -> Result<Healthy> {
    let healthy = Healthy::watch(hub);
    let version = releases::best().serving;
    let mut spec = product::serving(version);
    if !reference.is_null() {
        spec["clusterProfileRef"] = reference.clone();
    }
    hub.kubectl(&["create", "namespace", NAMESPACE], "").await?;
    apply(hub, &spec).await?;
    ready(hub, SERVING, NAMESPACE).await?;
    report.line(&format!("Knative Serving {version} with Kourier is Ready"));
    healthy.assert(hub, "an installation").await?;
    Ok(healthy)
}

pub fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}

/// Warning events of the operator.
pub async fn warnings(cluster: &Cluster) -> Result<Vec<String>> {
    let parameters = ListParams::default().fields("type=Warning");
    let events = Api::<Event>::all(cluster.client()).list(&parameters).await?;
    let is_ours = |event: &&Event| {
        serde_json::to_value(event).is_ok_and(|value: Value| {
            value["involvedObject"]["apiVersion"]
                .as_str()
                .is_some_and(|version| version.starts_with("operator.knative.dev/"))
        })
    };
    let text = |event: &Event| {
        format!("{}: {}", event.reason.as_deref().unwrap_or_default(), event.message.as_deref().unwrap_or_default())
    };
    Ok(events.items.iter().filter(is_ours).map(text).collect())
}
