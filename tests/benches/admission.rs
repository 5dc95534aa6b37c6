//! Cost of admission reviews: one replica of the webhook on one core, called directly over TLS,
//! with realistic resources. Prints reviews per second, the server's own time (from its histogram),
//! and its memory, after each part of BENCH_REVIEWS (default one million) reviews.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures, clippy::cast_precision_loss)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::{Result, http, measure, releases, tls};
use serde_json::{Value, json};

const PARTS: usize = 5;
/// Connections, as many as an API server opens.
const CONNECTIONS: usize = 8;

fn main() {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(run()).unwrap();
}

/// A typical KnativeServing, and its previous state.
fn review() -> Value {
    let object = |replicas: u32| {
        json!({
            "apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
            "metadata": {"name": "knative-serving", "namespace": "knative-serving", "uid": "0b3c", "generation": 3, "labels": {"team": "platform"},
                "annotations": {"argocd.argoproj.io/tracking-id": "knative:operator.knative.dev/KnativeServing:knative-serving/knative-serving"},
                "managedFields": [{"manager": "argocd-controller", "operation": "Apply", "apiVersion": "operator.knative.dev/v1beta1", "time": "2026-01-01T00:00:00Z",
                    "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:config": {"f:autoscaler": {}, "f:network": {}, "f:features": {}}, "f:workloads": {}, "f:ingress": {}}}}]},
            "spec": {
                "version": releases::best().serving,
                "high-availability": {"replicas": replicas},
                "ingress": {"kourier": {"enabled": true, "service-type": "LoadBalancer"}},
                "registry": {"default": "registry.example/knative/${NAME}:v1", "imagePullSecrets": [{"name": "pull"}]},
                "config": {
                    "autoscaler": {"stable-window": "90s", "max-scale": "20", "enable-scale-to-zero": "true"},
                    "network": {"ingress-class": "kourier.ingress.networking.knative.dev", "domain-template": "{{.Name}}.{{.Namespace}}.{{.Domain}}"},
                    "features": {"kubernetes.podspec-affinity": "enabled", "kubernetes.podspec-tolerations": "enabled"},
                    "observability": {"logging.enable-request-log": "true"},
                },
                "workloads": [
                    {"name": "activator", "replicas": replicas, "labels": {"tier": "data"}, "resources": [{"container": "activator", "limits": {"cpu": "1", "memory": "600Mi"}, "requests": {"cpu": "300m", "memory": "60Mi"}}],
                        "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "infra", "effect": "NoSchedule"}], "nodeSelector": {"pool": "infra"},
                        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"app": "activator"}}}]},
                    {"name": "controller", "env": [{"container": "controller", "envVars": [{"name": "HTTPS_PROXY", "value": "http://proxy.example:3128"}]}],
                        "livenessProbes": [{"container": "controller", "periodSeconds": 10}],
                        "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "controller"}}}}]}}},
                ],
                "podDisruptionBudgets": [{"name": "activator-pdb", "minAvailable": "50%"}],
            },
            "status": {"observedGeneration": 3, "version": releases::best().serving, "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        })
    };
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "705ab4f5-6393-11e8-b7cc-42010a800002", "operation": "UPDATE", "name": "knative-serving", "namespace": "knative-serving",
        "kind": {"group": "operator.knative.dev", "version": "v1beta1", "kind": "KnativeServing"},
        "resource": {"group": "operator.knative.dev", "version": "v1beta1", "resource": "knativeservings"},
        "userInfo": {"username": "system:serviceaccount:argocd:argocd-application-controller", "groups": ["system:authenticated"]},
        "object": object(3), "oldObject": object(2),
    }})
}

async fn run() -> Result<()> {
    let all: usize = std::env::var("BENCH_REVIEWS").ok().and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let hub = Cluster::hub("admission").await?;
    let plugins = tempfile::tempdir()?;
    let product = Product::install(&hub, &releases::best(), product::values(&[]), plugins.path()).await?;
    let (pod, _) = product.webhook.as_ref().ok_or("no webhook")?;
    let id = pod.process.pid()?;
    pin(id, "0")?;
    let body = Bytes::from(review().to_string());
    println!("one replica on one core, {CONNECTIONS} connections, reviews of {} bytes", body.len());
    println!(
        "{:>9}  {:>9}  {:>12}  {:>8}  {:>8}  {:>10}",
        "reviews", "a second", "CPU per review", "p50", "p99", "resident"
    );
    let client =
        Client::builder(TokioExecutor::new()).pool_max_idle_per_host(CONNECTIONS).build(tls::insecure_connector());
    let url: hyper::Uri = format!("https://{}:8443/validate", pod.address).parse()?;
    let (mut done, mut before) = (0, Histogram::default());
    println!(
        "{:>9}  {:>9}  {:>12}  {:>8}  {:>8}  {:>7.1} MB",
        0,
        "-",
        "-",
        "-",
        "-",
        measure::resident(id)? as f64 / 1e3
    );
    for _ in 0..PARTS {
        let (left, started, used) = (Arc::new(AtomicUsize::new(all / PARTS)), Instant::now(), measure::cpu(id)?);
        let workers = (0..CONNECTIONS).map(|_| {
            let (client, url, body, left) = (client.clone(), url.clone(), body.clone(), Arc::clone(&left));
            tokio::spawn(async move {
                while left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok() {
                    let request = hyper::Request::post(url.clone())
                        .header("content-type", "application/json")
                        .body(Full::new(body.clone()))?;
                    let answer = client.request(request).await?;
                    let status = answer.status();
                    let text = answer.into_body().collect().await?.to_bytes();
                    if !status.is_success() || !text.windows(14).any(|w| w == b"\"allowed\":true") {
                        return Err(format!("{status}: {}", String::from_utf8_lossy(&text)).into());
                    }
                }
                Ok::<_, knative_operator_tests::Error>(())
            })
        });
        for worker in futures::future::join_all(workers).await {
            worker??;
        }
        done += all / PARTS;
        let rate = (all / PARTS) as f64 / started.elapsed().as_secs_f64();
        let cpu = measure::cpu(id)?.saturating_sub(used).as_secs_f64() * 1e6 / (all / PARTS) as f64;
        let (_, text) = http::get((pod.address, 9090).into(), "/metrics").await?;
        let now = Histogram::read(&text);
        let part = now.since(&before);
        before = now;
        println!(
            "{done:>9}  {rate:>9.0}  {cpu:>9.0} µs  {:>8}  {:>8}  {:>7.1} MB",
            part.quantile(0.5),
            part.quantile(0.99),
            measure::resident(id)? as f64 / 1e3
        );
    }
    Ok(())
}

/// Restricts process `id` to `core`.
fn pin(id: i32, core: &str) -> Result<()> {
    let done = std::process::Command::new("taskset").args(["-a", "-p", "-c", core, &id.to_string()]).output()?;
    if done.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&done.stderr).into_owned().into()) }
}

/// The buckets of `admission_request_duration_seconds`: upper bound and cumulative count.
#[derive(Default)]
struct Histogram(Vec<(f64, f64)>);

impl Histogram {
    fn read(text: &str) -> Self {
        let rows = text
            .lines()
            .filter(|l| l.starts_with("admission_request_duration_seconds_bucket") && l.contains("\"validate\""));
        let row = |line: &str| {
            let bound = line.split("le=\"").nth(1)?.split('"').next()?;
            Some((bound.parse().unwrap_or(f64::INFINITY), line.rsplit(' ').next()?.parse().ok()?))
        };
        Self(rows.filter_map(row).collect())
    }

    fn since(&self, before: &Self) -> Self {
        let earlier = |bound: f64| before.0.iter().find(|(b, _)| b.total_cmp(&bound).is_eq()).map_or(0.0, |(_, n)| *n);
        Self(self.0.iter().map(|(bound, n)| (*bound, n - earlier(*bound))).collect())
    }

    /// The bound below which the share `part` of all reviews is.
    fn quantile(&self, part: f64) -> String {
        let all = self.0.last().map_or(0.0, |(_, n)| *n);
        let bound = self.0.iter().find(|(_, n)| *n >= all * part).map_or(f64::INFINITY, |(b, _)| *b);
        format!("<{:.2} ms", bound * 1e3)
    }
}
