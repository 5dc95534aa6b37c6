//! The webhook is never the outage: certificates are renewed and rolled over, replicas come and go, the chart is upgraded, all under load.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use knative_operator_shared::api::{Component, KnativeServing};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::kubelet::Pod;
use knative_operator_tests::product::{self, NAMESPACE, Product};
use knative_operator_tests::{Result, http, releases, tools, wait};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use rustix::process::Signal;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::support::{namespace, resource, run};

const SECRET: &str = "operator-webhook-certs";
const CONFIGURATION: &str = "validation.operator.knative.dev";

/// Admissions through the API server, at an even pace, until it is dropped.
struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicUsize>,
    refused: Arc<std::sync::Mutex<Vec<String>>>,
    task: JoinHandle<()>,
}

impl Load {
    /// `rate` admissions a second.
    fn start(client: &Client, rate: u32) -> Self {
        let (stop, done, refused) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)), Arc::default());
        let api: Api<KnativeServing> = Api::namespaced(client.clone(), "rotation");
        let (ended, counted, told): (_, _, Arc<std::sync::Mutex<Vec<String>>>) =
            (Arc::clone(&stop), Arc::clone(&done), Arc::clone(&refused));
        let task = tokio::spawn(async move {
            let mut tick = tokio::time::interval(Duration::from_secs(1) / rate);
            while !ended.load(Ordering::Relaxed) {
                tick.tick().await;
                let (api, done, told) = (api.clone(), Arc::clone(&counted), Arc::clone(&told));
                tokio::spawn(async move {
                    let object =
                        resource(Component::Serving, "rotation", "load", Some("nowhere"), json!({"high-availability": {"replicas": 2}}));
                    let object: KnativeServing = serde_json::from_value(object).unwrap();
                    match api.create(&PostParams { dry_run: true, ..PostParams::default() }, &object).await {
                        Ok(_) => drop(done.fetch_add(1, Ordering::Relaxed)),
                        Err(error) => told.lock().unwrap().push(error.to_string()),
                    }
                });
            }
        });
        Self { stop, done, refused, task }
    }

    /// Ends it: how many went through. Fails if any did not.
    async fn end(self) -> Result<usize> {
        self.stop.store(true, Ordering::Relaxed);
        self.task.await?;
        let refused = self.refused.lock().unwrap();
        let done = self.done.load(Ordering::Relaxed);
        if refused.is_empty() { Ok(done) } else { Err(format!("{} of {done} failed, the first: {}", refused.len(), refused[0]).into()) }
    }

    fn failures(&self) -> usize {
        self.refused.lock().unwrap().len()
    }
}

async fn metric(pod: &Pod, name: &str) -> Result<f64> {
    let (_, text) = http::get((pod.address, 9090).into(), "/metrics").await?;
    let line = text.lines().find(|line| line.starts_with(&format!("{name} "))).ok_or("no such metric")?;
    Ok(line.rsplit(' ').next().unwrap_or_default().parse()?)
}

fn bundle(configuration: &ValidatingWebhookConfiguration) -> String {
    let hooks = configuration.webhooks.iter().flatten();
    let bundle = hooks.map(|w| w.client_config.ca_bundle.clone().unwrap_or_default().0).next().unwrap_or_default();
    String::from_utf8(bundle).unwrap_or_default()
}

/// Waits until the caBundle of the configuration is whole again after somebody has wiped it; how long that took.
async fn wiped(hub: &Cluster) -> Result<Duration> {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(hub.client());
    let patch = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(patch)?);
    configurations.patch(CONFIGURATION, &PatchParams::default(), &patch).await?;
    let started = Instant::now();
    wait::until(&configurations, CONFIGURATION, Duration::from_secs(20), "put right", |c| c.is_some_and(|c| bundle(c).contains("BEGIN")))
        .await?;
    Ok(started.elapsed())
}

fn pace() -> u32 {
    std::env::var("ROTATION_RATE").ok().and_then(|rate| rate.parse().ok()).unwrap_or(200)
}

#[test]
fn nobody_notices_that_certificates_and_replicas_change() {
    run(async {
        let (hub, plugins) = (Cluster::hub("rotation").await?, tempfile::tempdir()?);
        let mut values = product::values(&[]);
        values["knative_operator"]["operator_webhook"] =
            json!({"certificates": {"certificateLifetime": "6s", "authorityLifetime": "24s"}, "drainDelay": "2s"});
        let mut product = Product::install(&hub, &releases::small(), values, plugins.path()).await?;
        namespace(&hub, "rotation").await?;
        let mut second = product.another_webhook(&hub).await?;
        product.serve_by(&[&second]);

        // Renewed 20 times, rolled over three times.
        let load = Load::start(&hub.client(), pace());
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(hub.client());
        let (mut authorities, started) = (BTreeSet::new(), Instant::now());
        loop {
            let configuration = configurations.get(CONFIGURATION).await?;
            authorities.extend(bundle(&configuration).split_inclusive("-----END CERTIFICATE-----\n").map(str::to_owned));
            let renewed = metric(&product.webhook.as_ref().ok_or("no webhook")?.0, "webhook_certificate_reloads_total").await? - 1.0;
            if (renewed >= 20.0 && authorities.len() > 3) || load.failures() > 0 {
                eprintln!("renewed {renewed} times, {} authorities, after {:.0?}", authorities.len(), started.elapsed());
                break;
            }
            assert!(started.elapsed() < Duration::from_secs(180), "only {renewed} renewals and {} authorities", authorities.len());
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        // Each knows of the same certificate.
        eprintln!("{} admissions, none failed", load.end().await?);

        // Both replicas go in turn, as a rollout has it: the next one is there before the last one goes.
        let load = Load::start(&hub.client(), pace());
        let third = product.another_webhook(&hub).await?;
        product.serve_by(&[&second, &third]);
        end(&mut product.webhook.as_mut().ok_or("no webhook")?.0, || ()).await?;
        product.only_served_by(&[&second, &third]);
        let fourth = product.another_webhook(&hub).await?;
        product.only_served_by(&[&second, &third, &fourth]);
        end(&mut second, || ()).await?;
        product.only_served_by(&[&third, &fourth]);
        eprintln!("{} admissions while both were replaced, none failed", load.end().await?);

        // The chart is upgraded.
        let load = Load::start(&hub.client(), pace());
        let chart = tools::project().join("charts/knative-operator").display().to_string();
        let file = hub.dir().join("values.json").display().to_string();
        for number in 0..2 {
            let annotation = format!("knative_operator.operator_webhook.podAnnotations.turn=t{number}");
            hub.helm(&[
                "upgrade",
                "knative-operator",
                &chart,
                "-n",
                NAMESPACE,
                "--values",
                &file,
                "--set",
                &annotation,
                "--wait",
                "--timeout",
                "2m",
            ])
            .await?;
        }
        eprintln!("{} admissions while the chart was upgraded, none failed", load.end().await?);

        // What is wiped comes back, and what is lost is replaced, unseen.
        let load = Load::start(&hub.client(), 5);
        let secrets: Api<Secret> = Api::namespaced(hub.client(), NAMESPACE);
        secrets.delete(SECRET, &kube::api::DeleteParams::default()).await?;
        let whole = |secret: Option<&Secret>| {
            secret.is_some_and(|s| s.data.as_ref().is_some_and(|d| d.get("tls.crt").is_some_and(|c| c.0.starts_with(b"-----BEGIN"))))
        };
        wait::until(&secrets, SECRET, Duration::from_secs(20), "there again", whole).await?;
        for rubbish in
            [json!({"data": null}), json!({"data": {"tls.crt": "cnViYmlzaA==", "ca.key": "cnViYmlzaA==", "authority.crt": "cnViYmlzaA=="}})]
        {
            secrets.patch(SECRET, &PatchParams::default(), &Patch::Merge(&rubbish)).await?;
            wait::until(&secrets, SECRET, Duration::from_secs(20), "whole again", |s| {
                whole(s)
                    && s.is_some_and(|s| {
                        s.data.as_ref().is_some_and(|d| d.get("authority.crt").is_some_and(|c| c.0.starts_with(b"-----BEGIN")))
                    })
            })
            .await?;
        }
        eprintln!("{} admissions while the Secret was lost three times, none failed", load.end().await?);
        let took = wiped(&hub).await?;
        eprintln!("a wiped caBundle is back after {took:.1?}");
        assert!(took < Duration::from_secs(2), "only after {took:?}");
        Ok(())
    });
}

/// Ends `pod` as the kubelet does: SIGTERM, and wait. Nobody has told the API server's side yet.
async fn end(pod: &mut Pod, then: impl FnOnce()) -> Result<()> {
    pod.process.signal(Signal::TERM)?;
    // It says at once that it wants no more.
    let told = async {
        while http::get((pod.address, 9090).into(), "/readyz").await.is_ok_and(|(code, _)| code == 200) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(2), told).await?;
    then();
    Ok(())
}
