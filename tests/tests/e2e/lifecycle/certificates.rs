//! Certificates of the webhook under hostile clocks, and from another source.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Secret;
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::cluster::apply::Terms;
use knative_operator_tests::kubelet::Pod;
use knative_operator_tests::product::{self, NAMESPACE, Product};
use knative_operator_tests::{Result, releases, tools};
use kube::Api;
use kube::api::DeleteParams;
use rustix::process::Signal;
use serde_json::json;

use super::TEAM;
use crate::load::Load;
use crate::rotation::provide;
use crate::support::{namespace, resource, run};

const SECRET: &str = "operator-webhook-certs";
const HOUR: i64 = 3600;
const YEAR: i64 = 365 * 24 * HOUR;
/// Time limit until requests are answered again.
const SOON: Duration = knative_operator_tests::wait::LIMIT;

/// Waits until the webhook answers the API server; returns the duration.
async fn answered(hub: &Cluster) -> Result<Duration> {
    let spec = json!({"high-availability": {"replicas": 0}});
    let refused = resource(Component::Serving, TEAM, "bad", Some("nowhere"), spec);
    let (begun, mut output) = (Instant::now(), String::new());
    while !output.contains("spec.high-availability.replicas: 0 is less than 1") {
        if begun.elapsed() > SOON {
            return Err(format!("not answered: {output}").into());
        }
        output = hub.try_apply(&refused, Terms::default()).await.1;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(begun.elapsed())
}

/// The resourceVersion of the Secret with the certificates.
async fn version(hub: &Cluster) -> Result<Option<String>> {
    let secrets = Api::<Secret>::namespaced(hub.client(), NAMESPACE);
    Ok(secrets.get_metadata(SECRET).await?.metadata.resource_version)
}

/// Stops all `pods` at once, like a node that fails.
fn kill(pods: Vec<Pod>) -> Result<()> {
    pods.into_iter().try_for_each(|pod| pod.process.signal(Signal::KILL))
}

#[test]
fn replicas_with_wrong_clocks_refuse_nothing() {
    run(async {
        let (hub, plugins) = (Cluster::hub("clocks").await?, tempfile::tempdir()?);
        let product = Product::create(&hub, &releases::small(), product::values(&[]), plugins.path()).await?;
        namespace(&hub, TEAM).await?;
        answered(&hub).await?;
        // An hour ahead and an hour behind, beside one that is right.
        let (ahead, behind) =
            (product.webhook_with_clock(&hub, HOUR).await?, product.webhook_with_clock(&hub, -HOUR).await?);
        let before = version(&hub).await?;
        let load = Load::start(&hub.client(), TEAM, 20);
        product.serve_by(&[&ahead, &behind]);
        let (logs, begun) = (|| ahead.process.log() + &behind.process.log(), Instant::now());
        while load.done() < 250 && load.failures() == 0 {
            assert!(begun.elapsed() < knative_operator_tests::wait::LIMIT, "{}", logs());
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        eprintln!("{} admissions with clocks an hour apart, none failed", load.end().await?);
        assert_eq!(version(&hub).await?, before, "{}", logs());
        kill(vec![ahead, behind])
    });
}

#[test]
fn certificates_that_are_not_valid_are_replaced_soon() {
    run(async {
        let (hub, plugins) = (Cluster::hub("validity").await?, tempfile::tempdir()?);
        let mut product = Product::create(&hub, &releases::small(), product::values(&[]), plugins.path()).await?;
        namespace(&hub, TEAM).await?;
        answered(&hub).await?;
        let secrets = Api::<Secret>::namespaced(hub.client(), NAMESPACE);
        for (what, years) in [("expired", -2), ("not valid yet", 2)] {
            // All replicas were away meanwhile: the last one whose clock was right for the
            // certificates has ended.
            let (first, _) = product.webhook.as_mut().ok_or("no webhook")?;
            first.process.signal(Signal::KILL)?;
            secrets.delete(SECRET, &DeleteParams::default()).await?;
            let last = product.webhook_with_clock(&hub, years * YEAR).await?;
            let (log, year) = (last.process.log(), Timestamp::now() + SignedDuration::from_secs(years * YEAR));
            let issued =
                log.lines().find(|line| line.contains("changed the certificates")).ok_or("it issued nothing")?;
            assert!(issued.starts_with(&format!(r#"{{"timestamp":"{}"#, year.strftime("%Y"))), "{issued}");
            kill(vec![last])?;
            product.start_webhook(&hub).await?;
            let took = answered(&hub).await?;
            eprintln!("certificates that were {what}: answered after {took:.1?}");
            // A replica with the wrong clock joins. Both agree, and requests of both are answered.
            let wrong = product.webhook_with_clock(&hub, years * YEAR).await?;
            product.only_served_by(&[&wrong]);
            let took = answered(&hub).await?;
            product.serve_by(&[]);
            let back = answered(&hub).await?;
            eprintln!("a clock {years} years off: answered by it after {took:.1?}, by the other after {back:.1?}");
            let before = version(&hub).await?;
            product.serve_by(&[&wrong]);
            for _ in 0..10 {
                answered(&hub).await?;
            }
            assert_eq!(version(&hub).await?, before, "the replicas replace each other's: {}", wrong.process.log());
            kill(vec![wrong])?;
        }
        Ok(())
    });
}

#[test]
fn source_of_certificates_is_changed_and_changed_back() {
    run(async {
        let (hub, plugins) = (Cluster::hub("source").await?, tempfile::tempdir()?);
        let mut product = Product::install(&hub, &releases::small(), product::values(&[]), plugins.path()).await?;
        namespace(&hub, TEAM).await?;
        provide(&hub).await?;
        let chart = tools::project().join("charts/knative-operator").display().to_string();
        let secrets = Api::<Secret>::namespaced(hub.client(), NAMESPACE);
        for (source, name, own) in [("secret", "own", false), ("self", "", true), ("secret", "own", false)] {
            let at = "knative_operator.operator_webhook.certificates";
            let values = format!("{at}.source={source},{at}.secretName={name}");
            let place = ["-n", NAMESPACE, "--reset-then-reuse-values", "--set", &values, "--wait", "--timeout", "2m"];
            hub.helm(&[&["upgrade", "knative-operator", &chart][..], &place].concat()).await?;
            // The rollout: the next replica is ready before the last one ends.
            let next = product.another_webhook(&hub).await?;
            product.only_served_by(&[&next]);
            eprintln!("source {source}: answered after {:.1?}", answered(&hub).await?);
            product.start_webhook(&hub).await?;
            answered(&hub).await?;
            assert_eq!(secrets.get_metadata_opt(SECRET).await?.is_some(), own, "{source}");
            assert!(secrets.get_metadata_opt("own").await?.is_some());
        }
        Ok(())
    });
}
