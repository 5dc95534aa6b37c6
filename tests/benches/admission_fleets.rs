//! Latency of small admission reviews while fleets with thousands of clusters are validated: one
//! replica of the webhook on one core, called directly over TLS. Before fleets were validated on a
//! thread of their own, each small review waited for as long as one fleet takes.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures)] // this is a bench

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::StreamExt;
use http_body_util::{BodyExt, Full};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use knative_operator_shared::api::ClusterProfile;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::{Result, releases, tls};
use kube::Api;
use kube::api::PostParams;
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};

/// Number of clusters of the fleet.
const CLUSTERS: usize = 2000;
/// Small reviews in each part.
const REVIEWS: usize = 2000;
/// Requests at the same time while the ClusterProfiles are created.
const CONCURRENCY: usize = 16;

type HttpsClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

fn main() {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(run()).unwrap();
}

fn review(version: &str, kind: &str, plural: &str, spec: &Value) -> Bytes {
    let object = json!({"apiVersion": format!("operator.knative.dev/{version}"), "kind": kind,
        "metadata": {"name": "a", "namespace": FLEET}, "spec": spec});
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "operation": "CREATE", "name": "a", "namespace": FLEET,
        "kind": {"group": "operator.knative.dev", "version": version, "kind": kind},
        "resource": {"group": "operator.knative.dev", "version": version, "resource": plural},
        "userInfo": {"username": "system:admin", "groups": ["system:masters"]}, "object": object,
    }});
    Bytes::from(review.to_string())
}

async fn send(client: &HttpsClient, url: &hyper::Uri, body: &Bytes) -> Result<Duration> {
    let started = Instant::now();
    let request = hyper::Request::post(url.clone()).header("content-type", "application/json");
    let answer = client.request(request.body(Full::new(body.clone()))?).await?.into_body().collect().await?.to_bytes();
    if answer.windows(14).any(|part| part == b"\"allowed\":true") {
        Ok(started.elapsed())
    } else {
        Err(String::from_utf8_lossy(&answer).into_owned().into())
    }
}

/// Sends small reviews one after another; prints the quantiles of their latency.
async fn small(client: &HttpsClient, url: &hyper::Uri, what: &str) -> Result<()> {
    let spec = json!({"version": releases::best().serving, "high-availability": {"replicas": 3}});
    let body = review("v1beta1", "KnativeServing", "knativeservings", &spec);
    let mut latencies = Vec::new();
    for _ in 0..REVIEWS {
        latencies.push(send(client, url, &body).await?);
    }
    latencies.sort();
    let at = |part: usize| latencies[(latencies.len() - 1) * part / 1000];
    println!("{what:>24}  p50 {:>9.2?}  p99 {:>9.2?}  largest {:>9.2?}", at(500), at(990), at(1000));
    Ok(())
}

async fn run() -> Result<()> {
    let hub = Cluster::hub("admission-fleets").await?;
    let plugins = tempfile::tempdir()?;
    let mut values = product::values(&[]);
    values["knative_operator"]["fleet"] = json!({"enabled": true});
    let product = Product::install(&hub, &releases::best(), values, plugins.path()).await?;
    // Untyped: the operator's type lacks fields that the definition requires.
    let kind = ApiResource::erase::<ClusterProfile>(&());
    let profiles: Api<DynamicObject> = Api::namespaced_with(hub.client(), FLEET, &kind);
    let create = |number: usize| {
        let profiles = profiles.clone();
        async move {
            let labels = json!({"env": "prod", "number": number.to_string(), "x-k8s.io/cluster-manager": "tests"});
            let profile = json!({"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile",
                "metadata": {"name": format!("c{number}"), "namespace": FLEET, "labels": labels},
                "spec": {"displayName": "c", "clusterManager": {"name": "tests"}}});
            profiles.create(&PostParams::default(), &serde_json::from_value(profile)?).await?;
            Result::Ok(())
        }
    };
    let mut created = futures::stream::iter((0..CLUSTERS).map(create)).buffer_unordered(CONCURRENCY);
    while let Some(done) = created.next().await {
        done?;
    }
    let (pod, _) = product.webhook.as_ref().ok_or("no webhook")?;
    std::process::Command::new("taskset").args(["-a", "-p", "-c", "0", &pod.process.pid()?.to_string()]).output()?;
    let client: HttpsClient = Client::builder(TokioExecutor::new()).build(tls::insecure_connector());
    let url: hyper::Uri = format!("https://{}:8443/validate", pod.address).parse()?;
    let overrides: Vec<Value> = (0..20)
        .map(|number| {
            json!({"clusterSelector": {"matchLabels": {"env": "prod"}},
                "serving": {"spec": {"config": {"logging": {format!("loglevel.{number}"): "debug"}}}}})
        })
        .collect();
    let spec = json!({"placement": {"clusterSelector": {"matchLabels": {"env": "prod"}}},
        "serving": {"spec": {"version": releases::best().serving}}, "overrides": overrides});
    let fleet = review("v1alpha1", "KnativeFleet", "knativefleets", &spec);
    println!("one fleet of {CLUSTERS} clusters: {:.2?}", send(&client, &url, &fleet).await?);
    small(&client, &url, "alone").await?;
    let fleets = async {
        loop {
            send(&client, &url, &fleet).await?;
        }
    };
    tokio::select! {
        ended = small(&client, &url, "beside fleets") => ended,
        failed = fleets => failed,
    }
}
