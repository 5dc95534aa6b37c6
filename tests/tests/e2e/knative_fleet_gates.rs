//! Gates of a `KnativeFleet`: requests through the service proxy of a real API server, and Jobs
//! with its Job controller.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use knative_operator_shared::api::KnativeFleetStatus;
use knative_operator_shared::label::FLEET_GATE;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::FLEET;
use knative_operator_tests::{Result, http, network, releases, wait};
use kube::Api;
use kube::api::ListParams;
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use crate::knative_fleet::{PLACE, children, fleet, has, status, two_spokes};
use crate::support::{INSTALL, apply, has_event, namespace, run};

/// Namespace on the canary of what the gates ask.
const ASKED: &str = "asked";
const HOST: &str = "hello.default.example.com";

/// A program outside of the cluster, with the heads of the requests that it got.
struct Site {
    address: SocketAddr,
    code: Arc<AtomicU16>,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Site {
    async fn open() -> Result<Self> {
        let listener = TcpListener::bind((network::endpoint()?, 0)).await?;
        let (address, code) = (listener.local_addr()?, Arc::new(AtomicU16::new(200)));
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let (answers, log) = (Arc::clone(&code), Arc::clone(&heads));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (answers, log) = (Arc::clone(&answers), Arc::clone(&log));
                tokio::spawn(async move {
                    let mut buffer = vec![0; 8192];
                    let length = stream.read(&mut buffer).await.unwrap_or_default();
                    log.lock().unwrap().push(String::from_utf8_lossy(&buffer[..length]).into_owned());
                    let code = answers.load(Ordering::Relaxed);
                    let body = if code == 200 { "hello" } else { "token=hunter22hunter22 is wrong" };
                    let head =
                        format!("HTTP/1.1 {code} x\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
                    let _ = stream.write_all((head + body).as_bytes()).await;
                });
            }
        });
        Ok(Self { address, code, heads })
    }

    /// The Service `site` in front of it, with a Pod that has its address: an API server sends
    /// requests to Pods only.
    async fn serve(&self, spoke: &Cluster) -> Result<()> {
        let (address, port) = (self.address.ip().to_string(), self.address.port());
        let meta = |labels: Value| json!({"name": "site", "namespace": ASKED, "labels": labels});
        let spec = json!({"nodeSelector": {"runs": "nowhere"}, "containers": [{"name": "site", "image": "registry.example/site"}]});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta(json!({})), "spec": spec});
        spoke.put(&pod).await?;
        let status = json!({"phase": "Running", "podIP": address, "podIPs": [{"ip": address}]});
        spoke.stored(&pod).merge_status(&status).await?;
        let of = json!({"kind": "Pod", "name": "site", "namespace": ASKED});
        let labels = json!({"endpointslice.kubernetes.io/skip-mirror": "true"});
        let endpoints = json!({"apiVersion": "v1", "kind": "Endpoints", "metadata": meta(labels),
            "subsets": [{"addresses": [{"ip": address, "targetRef": of}], "ports": [{"port": port, "protocol": "TCP"}]}]});
        spoke.put(&endpoints).await?;
        let slice = json!({"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
            "metadata": meta(json!({"kubernetes.io/service-name": "site"})),
            "endpoints": [{"addresses": [address], "conditions": {"ready": true}, "targetRef": of}],
            "ports": [{"name": "", "port": port, "protocol": "TCP"}]});
        spoke.put(&slice).await?;
        // The last one, since the gate fails without endpoints.
        let ports = json!([{"port": 80, "targetPort": port, "protocol": "TCP"}]);
        spoke
            .put(&json!({"apiVersion": "v1", "kind": "Service", "metadata": meta(json!({})), "spec": {"ports": ports}}))
            .await
    }
}

/// A fleet with a canary that has `gates`.
fn gated(version: &str, gates: &Value, on_failure: &str) -> Value {
    let mut object = fleet(&json!({"version": version, "ingress": {"kourier": {"enabled": true}}}));
    object["spec"]["rollout"] = json!({"onFailure": on_failure, "stages": [
        {"name": "canary", "clusterSelector": {"matchLabels": {"tier": "canary"}}, "gates": gates}, {"name": "prod"}]});
    object
}

fn attention(status: &KnativeFleetStatus, reason: &str, part: &str) -> bool {
    status.attention.iter().any(|entry| entry.reason == reason && entry.message.contains(part))
}

#[test]
fn canary_that_answers_500_stops_the_rollout_and_returns() {
    run(async {
        let releases = releases::small();
        let (hub, [a, _b], product, _plugins) = two_spokes(&releases, "kfleet-gates").await?;
        hub.object("clusterprofile", FLEET, "a").label(&json!({"tier": "canary"})).await?;
        namespace(&a, ASKED).await?;
        let gates = json!([{"name": "answers", "intervalSeconds": 1, "http": {
            "service": {"namespace": ASKED, "name": "site"}, "host": HOST, "path": "/healthz?full=yes", "expectedBody": "hello"}}]);
        apply(&hub, &gated("1.0.0", &gates, "Pause")).await?;

        // Without the Service, nothing can be measured: neither success nor failure.
        let part = "gates 0/1: answers can't be measured: services \"site\" not found";
        let unknown = status(&hub, "unknown", |status| attention(status, "GateUnknown", part)).await?;
        assert_eq!((unknown.failed, unknown.updated, children(&hub).await?.len()), (0, 0, 1), "{unknown:?}");
        assert!(has(&unknown, "Progressing", "RollingOut"), "{unknown:?}");
        let site = Site::open().await?;
        site.serve(&a).await?;
        let first = status(&hub, "Ready", |status| has(status, "Ready", "Ready")).await?;
        let heads = std::mem::take(&mut *site.heads.lock().unwrap());
        assert_eq!(heads.len(), 1, "{heads:?}");
        let head = heads[0].to_ascii_lowercase();
        assert!(head.starts_with("get /healthz?full=yes http/1.1\r\n"), "{head}");
        assert!(head.contains(&format!("\r\nhost: {HOST}\r\n")) && !head.contains("authorization"), "{head}");

        // Knative is Ready, and answers 500: the next stage is never written.
        site.code.store(500, Ordering::Relaxed);
        apply(&hub, &gated("1.1.0", &gates, "Pause")).await?;
        let failed = status(&hub, "paused", |status| has(status, "Paused", "TooManyFailures")).await?;
        let part = "gates 0/1: answers failed: HTTP 500, not 200: token=[hidden] is wrong";
        assert!(attention(&failed, "GateFailed", part), "{failed:?}");
        tokio::time::sleep(Duration::from_secs(2)).await;
        let versions = |a: &str| vec![("a".to_owned(), a.to_owned()), ("b".to_owned(), "1.0.0".to_owned())];
        assert_eq!(children(&hub).await?, versions("1.1.0"));
        assert_eq!(site.heads.lock().unwrap().len(), 1, "it is not asked again");

        // After a change of the fleet it is, and returns.
        apply(&hub, &gated("1.1.0", &gates, "Rollback")).await?;
        let back = status(&hub, "rolled back", |status| has(status, "Progressing", "RolledBack")).await?;
        assert_eq!(back.current_revision, first.current_revision);
        assert_eq!(children(&hub).await?, versions("1.0.0"));
        assert_eq!(site.heads.lock().unwrap().len(), 2);

        for reason in ["GateUnknown", "GateFailed"] {
            has_event(&hub, PLACE, reason, "").await?;
        }
        let (_, metrics) = http::get(product.metrics(), "/metrics").await?;
        let series = r#"knative_operator_fleet_gate_measurements_total{gate_type="http",result="failure"} 2"#;
        assert!(metrics.contains(series), "{metrics}");
        Ok(())
    });
}

/// The Jobs of gates on `spoke`.
async fn jobs(spoke: &Cluster) -> Result<Vec<Job>> {
    let jobs = Api::<Job>::namespaced(spoke.client(), ASKED);
    Ok(jobs.list(&ListParams::default().labels(FLEET_GATE)).await?.items)
}

/// Waits for a Pod of a Job of a gate, other than `before`, and ends it with `code` and `message`,
/// as a kubelet does.
async fn end_pod(spoke: &Cluster, before: &[String], code: i32, message: &str) -> Result<String> {
    let api = Api::<Pod>::namespaced(spoke.client(), ASKED);
    let name = |pod: &Pod| pod.metadata.name.clone().unwrap_or_default();
    let mut pods = Vec::new();
    for _ in 0..300 {
        pods = api.list(&ListParams::default().labels("job-name")).await?.items;
        pods.retain(|pod| !before.contains(&name(pod)));
        if !pods.is_empty() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let [pod] = pods.as_slice() else { return Err(format!("{} Pods", pods.len()).into()) };
    let phase = if code == 0 { "Succeeded" } else { "Failed" };
    let now = "2026-01-01T00:00:00Z";
    let ended = json!({"exitCode": code, "message": message, "reason": "Error", "startedAt": now, "finishedAt": now});
    let status = json!({"phase": phase, "containerStatuses": [{"name": "check", "image": "i", "imageID": "", "ready": false,
        "restartCount": 0, "state": {"terminated": ended}}]});
    spoke.object("Pod", ASKED, &name(pod)).merge_status(&status).await?;
    Ok(name(pod))
}

#[test]
fn job_that_fails_stops_the_rollout_with_its_last_words() {
    run(async {
        let releases = releases::small();
        let (hub, [a, _b], mut product, _plugins) = two_spokes(&releases, "kfleet-jobs").await?;
        hub.object("clusterprofile", FLEET, "a").label(&json!({"tier": "canary"})).await?;
        namespace(&a, ASKED).await?;
        // No node runs it: the test does.
        let pod = json!({"restartPolicy": "Never", "nodeSelector": {"runs": "nowhere"},
            "containers": [{"name": "check", "image": "registry.example/check"}]});
        let gates = json!([{"name": "load", "job": {"namespace": ASKED, "spec": {"template": {"spec": pod}}}}]);
        apply(&hub, &gated("1.0.0", &gates, "Pause")).await?;
        let pending = |status: &KnativeFleetStatus| attention(status, "GatePending", "gates 0/1: load is measured");
        status(&hub, "measured", pending).await?;
        let api = Api::<Job>::namespaced(a.client(), ASKED);
        wait::until_all(&api, FLEET_GATE, INSTALL, "started", |jobs| jobs.len() == 1).await?;

        // An operator that is killed meanwhile starts no second Job.
        product.restart_operator(&hub, Signal::KILL).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let found = jobs(&a).await?;
        assert_eq!(found.len(), 1, "{found:?}");
        let template = found[0].spec.clone().unwrap_or_default().template.spec.unwrap_or_default();
        let variables = template.containers[0].env.clone().unwrap_or_default();
        let value = |name: &str| variables.iter().find(|v| v.name == name).and_then(|v| v.value.clone());
        assert_eq!(value("KNATIVE_FLEET_CLUSTER").as_deref(), Some("fleet-system/a"));
        assert_eq!(value("KNATIVE_FLEET_SERVING_VERSION").as_deref(), Some("1.0.0"));
        assert_eq!(children(&hub).await?.len(), 1);
        let first = end_pod(&a, &[], 0, "").await?;
        status(&hub, "Ready", |status| has(status, "Ready", "Ready")).await?;
        assert_eq!(jobs(&a).await?.len(), 1);

        // The next one fails.
        apply(&hub, &gated("1.1.0", &gates, "Pause")).await?;
        end_pod(&a, &[first], 7, "p99 of 300 ms is too slow\n").await?;
        let failed = status(&hub, "paused", |status| has(status, "Paused", "TooManyFailures")).await?;
        let part = "failed: container check exited with code 7: p99 of 300 ms is too slow";
        assert!(attention(&failed, "GateFailed", part), "{failed:?}");
        let text = hub.kubectl(&["get", "kfleet", "prod", "-n", PLACE, "-o", "jsonpath={.status.attention}"], "");
        assert!(text.await?.contains("gates 0/1: load failed: Job asked/gate-load-"));
        assert_eq!(children(&hub).await?.iter().filter(|(_, version)| version == "1.1.0").count(), 1);
        // Also after a restart, the status has the last words.
        product.restart_operator(&hub, Signal::KILL).await?;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let same = status(&hub, "still paused", |status| has(status, "Paused", "TooManyFailures")).await?;
        assert!(attention(&same, "GateFailed", part), "{same:?}");
        assert_eq!(jobs(&a).await?.len(), 2);
        Ok(())
    });
}
