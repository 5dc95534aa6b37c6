//! Requests to Knative Services through their ingress.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{Pod, Service};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};

use crate::cluster::Cluster;
use crate::{Result, http};

/// Time limit until a Knative Service answers.
pub const ANSWER: Duration = Duration::from_secs(30);
/// Time limit until the last Pod of a Knative Service is being deleted.
const ZERO: Duration = Duration::from_secs(30);
/// Time between two requests that wait for an answer.
const AGAIN: Duration = Duration::from_millis(20);

/// Address of Kourier's gateway for requests from outside of the cluster.
pub async fn gateway(cluster: &Cluster) -> Result<SocketAddr> {
    let services: Api<Service> = Api::namespaced(cluster.client(), "knative-serving");
    let spec = services.get("kourier").await?.spec.ok_or("a Service without spec")?;
    let address: IpAddr = spec.cluster_ip.as_deref().unwrap_or_default().parse()?;
    Ok(SocketAddr::new(address, 80))
}

/// A Knative Service that answers requests. `annotations`: those of its revision.
pub fn service(name: &str, annotations: &Value) -> Value {
    json!({"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": name, "namespace": "default"},
        "spec": {"template": {"metadata": {"annotations": annotations}, "spec": {"containers": [
            {"image": "registry.example/hello:1", "env": [{"name": "ANSWER", "value": format!("hello from {name}")}]}]}}}})
}

/// Host of a Knative Service in the namespace `default`.
pub fn host(name: &str) -> String {
    format!("{name}.default.example.com")
}

/// Waits until the Knative Service `name` in the namespace `default` has no Pod that gets requests:
/// those that are left are being deleted.
pub async fn scaled_to_zero(cluster: &Cluster, name: &str) -> Result<()> {
    let label = format!("serving.knative.dev/service={name}");
    let wait = ["wait", "deployment", "-l", &label, "--for=jsonpath={.spec.replicas}=0", "--timeout=90s"];
    cluster.kubectl(&wait, "").await?;
    let (pods, begun) = (Api::<Pod>::namespaced(cluster.client(), "default"), Instant::now());
    let select = ListParams::default().labels(&label);
    while pods.list(&select).await?.iter().any(|pod| pod.metadata.deletion_timestamp.is_none()) {
        if begun.elapsed() > ZERO {
            return Err(format!("a Pod of {name} is not being deleted after {ZERO:?}").into());
        }
        tokio::time::sleep(AGAIN).await;
    }
    Ok(())
}

/// Requests `host` until it answers with 200; returns the body, the time, and the number of other
/// answers.
pub async fn until_answer(gateway: SocketAddr, host: &str, limit: Duration) -> Result<(String, Duration, u32)> {
    let started = Instant::now();
    let (mut failed, mut last) = (0, String::new());
    while started.elapsed() < limit {
        let rest = limit.saturating_sub(started.elapsed());
        match tokio::time::timeout(rest, http::get_from(gateway, host, "/")).await {
            Ok(Ok((200, body))) => return Ok((body, started.elapsed(), failed)),
            Ok(Ok((code, body))) => last = format!("{code} {body}"),
            Ok(Err(error)) => last = error.to_string(),
            Err(_) => "no answer".clone_into(&mut last),
        }
        failed += 1;
        tokio::time::sleep(AGAIN).await;
    }
    Err(format!("{host} has not answered after {limit:?}: {last}").into())
}
