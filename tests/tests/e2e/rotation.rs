//! The webhook stays available while certificates are rotated, replicas replaced and the chart
//! upgraded, under load.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::api::admissionregistration::v1::ValidatingWebhookConfiguration;
use k8s_openapi::api::core::v1::Secret;
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::cluster::apply::Terms;
use knative_operator_tests::kubelet::Pod;
use knative_operator_tests::pki::Authority;
use knative_operator_tests::product::{self, NAMESPACE, Product, webhook_addresses};
use knative_operator_tests::{Result, http, releases, tools, wait};
use kube::Api;
use kube::api::{Patch, PatchParams};
use rustix::process::Signal;
use serde_json::json;

use crate::load::{self, Load};
use crate::support::{namespace, resource, run, step};

const SECRET: &str = "operator-webhook-certs";
const CONFIGURATION: &str = "validation.operator.knative.dev";

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

/// Waits until the removed caBundle of the configuration is back; returns the duration.
async fn wiped(hub: &Cluster) -> Result<Duration> {
    let configurations: Api<ValidatingWebhookConfiguration> = Api::all(hub.client());
    let patch = json!([{"op": "replace", "path": "/webhooks/0/clientConfig/caBundle", "value": ""}]);
    let patch: Patch<()> = Patch::Json(serde_json::from_value(patch)?);
    configurations.patch(CONFIGURATION, &PatchParams::default(), &patch).await?;
    let started = Instant::now();
    wait::until(&configurations, CONFIGURATION, wait::LIMIT, "restored", |c| {
        c.is_some_and(|c| bundle(c).contains("BEGIN"))
    })
    .await?;
    Ok(started.elapsed())
}

/// Load and lifetimes.
struct Effort {
    /// Admissions per second.
    rate: u32,
    /// Lifetimes of the certificate and its authority.
    lives: (&'static str, &'static str),
    renewals: f64,
    rolls: usize,
}

fn effort() -> Effort {
    let rate = load::rate();
    if load::is_full() {
        Effort { rate, lives: ("6s", "24s"), renewals: 20.0, rolls: 3 }
    } else {
        Effort { rate, lives: ("20s", "75s"), renewals: 4.0, rolls: 1 }
    }
}

/// Time until all nodes know that a Pod terminates, less than the drain delay.
const PROPAGATION: Duration = Duration::from_secs(2);

async fn chart_is_upgraded(hub: &Cluster) -> Result<()> {
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
            "10m",
        ])
        .await?;
    }
    Ok(())
}

async fn lost_secret_is_replaced(hub: &Cluster) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(hub.client(), NAMESPACE);
    secrets.delete(SECRET, &kube::api::DeleteParams::default()).await?;
    let whole = |secret: Option<&Secret>| {
        secret.is_some_and(|s| {
            s.data.as_ref().is_some_and(|d| d.get("tls.crt").is_some_and(|c| c.0.starts_with(b"-----BEGIN")))
        })
    };
    wait::until(&secrets, SECRET, wait::LIMIT, "there again", whole).await?;
    for rubbish in [
        json!({"data": null}),
        json!({"data": {"tls.crt": "cnViYmlzaA==", "ca.key": "cnViYmlzaA==", "authority.crt": "cnViYmlzaA=="}}),
    ] {
        secrets.patch(SECRET, &PatchParams::default(), &Patch::Merge(&rubbish)).await?;
        wait::until(&secrets, SECRET, wait::LIMIT, "whole again", |s| {
            whole(s)
                && s.is_some_and(|s| {
                    s.data
                        .as_ref()
                        .is_some_and(|d| d.get("authority.crt").is_some_and(|c| c.0.starts_with(b"-----BEGIN")))
                })
        })
        .await?;
        // The restored certificates are rotated in steps.
        tokio::time::sleep(Duration::from_secs(3)).await;
    }
    Ok(())
}

#[test]
fn rotation_and_replacement_fail_no_admission() {
    run(async {
        let (hub, plugins) = (Cluster::hub("rotation").await?, tempfile::tempdir()?);
        let (mut values, effort) = (product::values(&[]), effort());
        values["knative_operator"]["operator_webhook"] =
            json!({"certificates": {"certificateLifetime": effort.lives.0, "authorityLifetime": effort.lives.1}});
        let mut product = Product::install(&hub, &releases::small(), values, plugins.path()).await?;
        namespace(&hub, "rotation").await?;
        let mut second = product.another_webhook(&hub).await?;
        product.serve_by(&[&second]);

        // Renewals and rotations.
        let load = Load::start(&hub.client(), "rotation", effort.rate);
        let configurations: Api<ValidatingWebhookConfiguration> = Api::all(hub.client());
        let (mut authorities, started) = (BTreeSet::new(), Instant::now());
        loop {
            let configuration = configurations.get(CONFIGURATION).await?;
            authorities
                .extend(bundle(&configuration).split_inclusive("-----END CERTIFICATE-----\n").map(str::to_owned));
            let renewed = metric(&product.webhook.as_ref().ok_or("no webhook")?.0, "webhook_certificate_reloads_total")
                .await?
                - 1.0;
            if (renewed >= effort.renewals && authorities.len() > effort.rolls) || load.failures() > 0 {
                eprintln!(
                    "renewed {renewed} times, {} authorities, after {:.0?}",
                    authorities.len(),
                    started.elapsed()
                );
                break;
            }
            assert!(
                started.elapsed() < Duration::from_secs(600),
                "only {renewed} renewals and {} authorities",
                authorities.len()
            );
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        eprintln!("{} admissions, none failed", load.end().await?);

        // Both replicas are replaced in turn, as in a rollout: the next one is ready before the
        // last one stops.
        let load = Load::start(&hub.client(), "rotation", effort.rate);
        let third = product.another_webhook(&hub).await?;
        product.serve_by(&[&second, &third]);
        let (first, port) = product.webhook.as_mut().ok_or("no webhook")?;
        end(first, || port.to(webhook_addresses(&[&second, &third]))).await?;
        let fourth = product.another_webhook(&hub).await?;
        product.only_served_by(&[&second, &third, &fourth]);
        end(&mut second, || product.only_served_by(&[&third, &fourth])).await?;
        eprintln!("{} admissions while both were replaced, none failed", load.end().await?);

        // Upgrade of the chart.
        let load = Load::start(&hub.client(), "rotation", effort.rate);
        step("an upgrade of the chart", chart_is_upgraded(&hub)).await?;
        eprintln!("{} admissions while the chart was upgraded, none failed", load.end().await?);

        // A removed caBundle is restored, and a lost Secret replaced, without failures.
        let load = Load::start(&hub.client(), "rotation", effort.rate);
        step("a lost Secret", lost_secret_is_replaced(&hub)).await?;
        eprintln!("{} admissions while the Secret was lost three times, none failed", load.end().await?);
        let took = wiped(&hub).await?;
        eprintln!("an erased caBundle is restored after {took:.1?}");
        Ok(())
    });
}

/// Writes a certificate of a new authority to Secret `own`, like another issuer.
pub async fn provide(hub: &Cluster) -> Result<()> {
    let authority = Authority::new("somebody")?;
    let names = [format!("operator-webhook.{NAMESPACE}.svc")];
    let issued = authority.issue("operator-webhook", None, &[], &names.each_ref().map(String::as_str))?;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": {"name": "own", "namespace": NAMESPACE},
        "stringData": {"tls.crt": issued.certificate, "tls.key": issued.key, "ca.crt": authority.pem()}});
    hub.apply(&secret).await
}

#[test]
fn provided_certificates_are_served_and_followed() {
    run(async {
        let (hub, plugins) = (Cluster::hub("provided").await?, tempfile::tempdir()?);
        namespace(&hub, NAMESPACE).await?;
        provide(&hub).await?;
        let mut values = product::values(&[]);
        values["knative_operator"]["operator_webhook"] =
            json!({"certificates": {"source": "secret", "secretName": "own"}});
        let product = Product::create(&hub, &releases::small(), values, plugins.path()).await?;
        namespace(&hub, "rotation").await?;
        let bad = resource(
            Component::Serving,
            "rotation",
            "bad",
            Some("nowhere"),
            json!({"high-availability": {"replicas": 0}}),
        );
        let (_, output) = hub.try_apply(&bad, Terms::default()).await;
        assert!(output.contains("spec.high-availability.replicas: 0 is less than 1"), "{output}");
        // Another certificate is served without a restart, and its authority injected.
        let (pod, _) = product.webhook.as_ref().ok_or("no webhook")?;
        let reloads = metric(pod, "webhook_certificate_reloads_total").await?;
        provide(&hub).await?;
        let started = Instant::now();
        while metric(pod, "webhook_certificate_reloads_total").await? <= reloads {
            assert!(started.elapsed() < wait::LIMIT, "{}", pod.process.log());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let mut output = String::new();
        while !output.contains("spec.high-availability.replicas") {
            assert!(started.elapsed() < wait::LIMIT, "{output}");
            output = hub.try_apply(&bad, Terms::default()).await.1;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Ok(())
    });
}

/// Stops `pod` like the kubelet: SIGTERM, and wait. It must report not ready immediately, and still
/// answer; `leave` removes it from the Service after [`PROPAGATION`].
async fn end(pod: &mut Pod, leave: impl FnOnce()) -> Result<()> {
    pod.process.signal(Signal::TERM)?;
    let (mut leave, started) = (Some(leave), Instant::now());
    while pod.process.ended().is_none() {
        let not_ready = http::get((pod.address, 9090).into(), "/readyz").await.is_ok_and(|(code, _)| code == 503);
        if not_ready && started.elapsed() > PROPAGATION {
            leave.take().into_iter().for_each(|leave| leave());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    if leave.is_none() { Ok(()) } else { Err("the stopping Pod never reported not ready".into()) }
}
