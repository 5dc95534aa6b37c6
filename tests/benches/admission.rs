//! Cost of admission reviews: one replica of the webhook on one core, called directly over TLS,
//! with realistic resources. Prints reviews per second, the server's own time (from its histogram),
//! and its memory, after each part of BENCH_REVIEWS (default one million) reviews. Then the same
//! for reviews about which the API server is asked.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures, clippy::cast_precision_loss)]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::kubelet::Pod;
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
        let used = measure::cpu(id)?;
        let took = load(&client, &url, std::slice::from_ref(&body), all / PARTS).await?;
        done += all / PARTS;
        let rate = (all / PARTS) as f64 / took.as_secs_f64();
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
    for role in ["knative-operator-user", "knative-operator-customizer"] {
        let everybody = json!({"apiGroup": GROUP, "kind": "Group", "name": "system:authenticated"});
        let binding = json!({"apiVersion": format!("{GROUP}/v1"), "kind": "ClusterRoleBinding", "metadata": {"name": role},
            "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": role}, "subjects": [everybody]});
        hub.put(&binding).await?;
    }
    permissions(pod, &client, &url, all / PARTS).await
}

/// API group of roles.
const GROUP: &str = "rbac.authorization.k8s.io";

/// Number of users who ask for permission.
const USERS: usize = 100;

/// Prints the cost of reviews about which the API server is asked: new resources of [`USERS`] users
/// with a target cluster.
async fn permissions(pod: &Pod, client: &HttpsClient, url: &hyper::Uri, count: usize) -> Result<()> {
    let bodies: Vec<Bytes> = (0..USERS)
        .map(|user| {
            let mut review = review();
            let request = &mut review["request"];
            request["operation"] = json!("CREATE");
            request["oldObject"] = Value::Null;
            request["userInfo"]["username"] = json!(format!("user-{user}"));
            request["object"]["spec"]["clusterProfileRef"] = json!({"name": "spoke", "namespace": "fleet-system"});
            Bytes::from(review.to_string())
        })
        .collect();
    let took = load(client, url, &bodies, count).await?;
    let (_, text) = http::get((pod.address, 9090).into(), "/metrics").await?;
    let sum = |part: &str| -> f64 {
        let rows = text.lines().filter(|line| line.starts_with("admission_authorization") && line.contains(part));
        rows.filter_map(|row| row.rsplit(' ').next()?.parse::<f64>().ok()).sum()
    };
    let (cached, asked) = (sum("source=\"cache\""), sum("source=\"api_server\""));
    let latency = sum("duration_seconds_sum") / sum("duration_seconds_count") * 1e3;
    println!(
        "two permissions of {USERS} users: {:.0} reviews a second; {:.2} % of {:.0} answers from the cache; {latency:.1} ms for a SubjectAccessReview",
        count as f64 / took.as_secs_f64(),
        cached / (cached + asked) * 100.0,
        cached + asked,
    );
    Ok(())
}

type HttpsClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Sends `count` reviews, with `bodies` in turn, over all connections; returns the time.
async fn load(client: &HttpsClient, url: &hyper::Uri, bodies: &[Bytes], count: usize) -> Result<Duration> {
    let (left, started) = (Arc::new(AtomicUsize::new(count)), Instant::now());
    let workers = (0..CONNECTIONS).map(|_| {
        let (client, url, bodies, left) = (client.clone(), url.clone(), bodies.to_vec(), Arc::clone(&left));
        tokio::spawn(async move {
            while let Ok(number) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)) {
                let request = hyper::Request::post(url.clone())
                    .header("content-type", "application/json")
                    .body(Full::new(bodies[number % bodies.len()].clone()))?;
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
    Ok(started.elapsed())
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
