//! NetworkPolicies of the chart, enforced by the firewall of kube-router.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::NAMESPACE;
use knative_operator_tests::real::{images, product};
use kube::Api;
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::net::TcpStream;

use crate::support::{self, Report, install, run};

/// Time limit until the engine has set a policy up.
const ENFORCED: Duration = Duration::from_secs(30);
/// Time limit of a connection: a firewall may drop packets, or refuse them.
const CONNECTED: Duration = Duration::from_secs(1);
/// Time between two connections.
const AGAIN: Duration = Duration::from_millis(200);
/// Longer than three failed probes of the chart's Pods.
const PROBED: Duration = Duration::from_secs(35);
/// Ports of the chart's Pods by the label of their Pods, and what they serve.
const PORTS: [(&str, u16, &str); 3] = [
    ("role=operator-webhook", 8443, "reviews"),
    ("role=operator-webhook", 9090, "metrics of the webhook"),
    ("name=knative-operator", 9090, "metrics of the operator"),
];

#[test]
fn policies_admit_whom_they_name() {
    run(policies());
}

/// This process is outside of the cluster; the API server and the kubelet are on the node, which
/// NetworkPolicies always admit.
async fn policies() -> Result<()> {
    let mut report = Report::new();
    let mut hub = Cluster::real("policies", images::registry().await?).await?;
    hub.enforce_policies()?;
    product::install(&hub, &product::values()).await?;
    connect(&hub, [true; 3]).await?;
    report.line("no policies: who is outside connects to reviews and metrics");

    let outside = hub.machine().ok_or("no real node")?.net().outside();
    let nobody = json!([{"ipBlock": {"cidr": "192.0.2.1/32"}}]);
    upgrade(&hub, &json!({"enabled": true, "apiServer": nobody, "metrics": nobody})).await?;
    connect(&hub, [false; 3]).await?;
    report.line("networkPolicy.enabled with other peers: who is outside connects to nothing");
    restart(&hub).await?;
    let restarted = Instant::now();
    connect(&hub, [false; 3]).await?;

    install(&mut report, &hub, &Value::Null).await?;
    let invalid = support::apply(&hub, &json!({"version": "no version"})).await;
    let text = invalid.err().map(|error| error.to_string()).unwrap_or_default();
    assert!(text.contains("is not a version"), "{text}");
    report.line("the API server asks the webhook, the operator installs; who is outside connects to nothing");
    probed(&hub, restarted).await?;
    report.line("the kubelet's probes pass");

    let peers = json!([{"ipBlock": {"cidr": format!("{outside}/32")}}]);
    upgrade(&hub, &json!({"enabled": true, "apiServer": nobody, "metrics": peers})).await?;
    connect(&hub, [false, true, true]).await?;
    report.line("networkPolicy.metrics admits who is outside to metrics alone");
    upgrade(&hub, &json!({"enabled": false, "apiServer": nobody, "metrics": nobody})).await?;
    connect(&hub, [false, false, true]).await?;
    report.line("networkPolicy.apiServer alone restricts the webhook, not the operator");
    upgrade(&hub, &json!({"enabled": false, "apiServer": [], "metrics": []})).await?;
    connect(&hub, [true; 3]).await?;
    report.line("without policies, all is as before");
    Ok(())
}

/// Changes the values `networkPolicy` of the installed chart.
async fn upgrade(hub: &Cluster, policy: &Value) -> Result<()> {
    let chart = knative_operator_tests::project().join("charts/knative-operator").display().to_string();
    let (values, place) = (format!("networkPolicy={policy}"), ["--namespace", NAMESPACE, "--reuse-values"]);
    let arguments = [&["upgrade", "knative-operator", &chart, "--set-json", &values], &place[..]].concat();
    hub.helm(&arguments).await.map(drop)
}

/// Replaces all Pods of the chart, until the new ones are ready.
async fn restart(hub: &Cluster) -> Result<()> {
    hub.kubectl(&["rollout", "restart", "deployment", "-n", NAMESPACE], "").await?;
    hub.kubectl(&["rollout", "status", "deployment", "-n", NAMESPACE, "--timeout=120s"], "").await.map(drop)
}

/// Probes since `restarted` have failed for longer than the kubelet accepts, if the policies refuse
/// them: all Pods are ready, and were not restarted.
async fn probed(hub: &Cluster, restarted: Instant) -> Result<()> {
    tokio::time::sleep(PROBED.saturating_sub(restarted.elapsed())).await;
    for pod in Api::<Pod>::namespaced(hub.client(), NAMESPACE).list(&ListParams::default()).await? {
        let status = pod.status.unwrap_or_default();
        let all = status.container_statuses.unwrap_or_default();
        assert!(all.iter().all(|container| container.ready && container.restart_count == 0), "{all:?}");
    }
    Ok(())
}

/// Whether a connection from this process is accepted. A firewall drops its packets or refuses it.
async fn is_accepted(address: SocketAddr) -> bool {
    matches!(tokio::time::timeout(CONNECTED, TcpStream::connect(address)).await, Ok(Ok(_)))
}

/// Waits until connections to the [`PORTS`] are accepted, or not, as `expected`.
async fn connect(hub: &Cluster, expected: [bool; 3]) -> Result<()> {
    let pods: Api<Pod> = Api::namespaced(hub.client(), NAMESPACE);
    let begun = Instant::now();
    loop {
        let mut seen = Vec::new();
        for (label, port, serves) in PORTS {
            let pods = pods.list(&ListParams::default().labels(label)).await?;
            let mut running = pods.items.iter().filter(|pod| pod.metadata.deletion_timestamp.is_none());
            let status = running.next().and_then(|pod| pod.status.as_ref());
            let address = status.and_then(|status| status.pod_ip.as_deref()).and_then(|address| address.parse().ok());
            // A new Pod has none for a moment.
            let Some(address) = address else { continue };
            seen.push((is_accepted(SocketAddr::new(address, port)).await, serves));
        }
        if seen.iter().map(|(accepted, _)| *accepted).eq(expected) {
            return Ok(());
        }
        if begun.elapsed() > ENFORCED {
            let log = hub.log_of_policies();
            return Err(format!("{seen:?} after {ENFORCED:?} instead of {expected:?}:\n{log}").into());
        }
        tokio::time::sleep(AGAIN).await;
    }
}
