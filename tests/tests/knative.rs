//! Knative's own controllers and webhooks, built from its Go modules, and Envoy run as what the
//! operator installs: on a spoke whose API server calls admission webhooks, in Pods with networks
//! of their own. Pods of Knative Services are played by KWOK.
//!
//! Takes minutes and needs root, so it is not part of `make test`: `make test-knative` sets
//! `KNATIVE_CONTROLLERS=yes`. `KNATIVE_REST_MINUTES` is the time at rest (default 10).

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures)] // these are tests

use std::time::{Duration, Instant};

use knative_operator_tests::cluster::{Cluster, Setup};
use knative_operator_tests::measure::{Audit, by_verb};
use knative_operator_tests::node::{Node, Programs};
use knative_operator_tests::product::{self, Product, SPOKE_USER};
use knative_operator_tests::skip::{LONG_BUILD, skip};
use knative_operator_tests::{Result, releases, remaining};
use serde_json::{Value, json};

const SPOKE: Setup = Setup {
    webhooks: true,
    real_namespaces: &["knative-serving", "knative-eventing", "kourier-system"],
    http2: true,
    real_node: None,
};
/// Versions of Serving and Eventing, and those of the next minor, which the modules in
/// `tests/tools` have.
const VERSIONS: [[&str; 2]; 2] = [["1.21.2", "1.21.2"], ["1.22.1", "1.22.2"]];
const NAMESPACE: &str = "knative";
const BY_HAND: Duration = Duration::from_secs(30);

struct World {
    hub: Cluster,
    spoke: Cluster,
    begin: Instant,
}

impl World {
    fn report(&self, text: &str) {
        println!("{:6.1} s  {text}", self.begin.elapsed().as_secs_f64());
    }

    async fn apply(&self, versions: [&str; 2], config: &Value) -> Result<()> {
        let reference = json!({"name": "spoke", "namespace": product::FLEET});
        let list = json!({"apiVersion": "v1", "kind": "List", "items": [
            {"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
                "metadata": {"name": "serving", "namespace": NAMESPACE},
                "spec": {"clusterProfileRef": reference, "version": versions[0], "config": config,
                    "ingress": {"kourier": {"enabled": true}}}},
            {"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeEventing",
                "metadata": {"name": "eventing", "namespace": NAMESPACE},
                "spec": {"clusterProfileRef": reference, "version": versions[1]}},
        ]});
        self.hub.kubectl(&["apply", "-f", "-"], &list.to_string()).await.map(drop)
    }

    /// Waits until both resources are Ready in `versions`.
    async fn ready(&self, versions: [&str; 2]) -> Result<()> {
        for (resource, version) in ["knativeserving/serving", "knativeeventing/eventing"].into_iter().zip(versions) {
            let version = format!("--for=jsonpath={{.status.version}}={version}");
            for what in [version.as_str(), "--for=condition=Ready"] {
                if let Err(error) =
                    self.hub.kubectl(&["wait", resource, "-n", NAMESPACE, what, "--timeout=240s"], "").await
                {
                    let (_, status) =
                        self.hub.kubectl_output(&["get", resource, "-n", NAMESPACE, "-o", "yaml"], "").await;
                    let (_, pods) = self.spoke.kubectl_output(&["get", "pods", "-A"], "").await;
                    return Err(format!("{error}\n{status}\n{pods}").into());
                }
            }
            self.report(&format!("{resource} is Ready"));
        }
        Ok(())
    }

    /// Creates `object` on the spoke, as soon as its webhooks admit it, and waits until it is
    /// Ready.
    async fn created(&self, object: &Value, limit: Duration) -> Result<Duration> {
        let started = Instant::now();
        loop {
            let (is_applied, output) = self.spoke.kubectl_output(&["apply", "-f", "-"], &object.to_string()).await;
            if is_applied {
                break;
            }
            if started.elapsed() > limit {
                return Err(output.into());
            }
            tokio::time::sleep(Duration::from_millis(300)).await;
        }
        let kind = object["kind"].as_str().unwrap_or_default().to_lowercase();
        let group = object["apiVersion"].as_str().and_then(|version| version.split('/').next()).unwrap_or_default();
        let name = format!("{kind}.{group}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
        let timeout = format!("--timeout={}s", limit.as_secs());
        if let Err(error) = self.spoke.kubectl(&["wait", &name, "--for=condition=Ready", &timeout], "").await {
            let (_, status) = self.spoke.kubectl_output(&["get", &name, "-o", "yaml"], "").await;
            return Err(format!("{error}\n{status}").into());
        }
        Ok(started.elapsed())
    }

    async fn service(&self, name: &str) -> Result<Duration> {
        let service = json!({"apiVersion": "serving.knative.dev/v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"template": {"metadata": {"annotations": {"autoscaling.knative.dev/min-scale": "1"}}, "spec": {"containers": [
                // With a digest, so that no registry is asked.
                {"image": format!("registry.example/app@sha256:{}", "0".repeat(64))}]}}}});
        self.created(&service, Duration::from_secs(120)).await
    }

    /// Waits until `holds` is true for the output of a command on the spoke.
    async fn until(&self, arguments: &[&str], holds: impl Fn(bool, &str) -> bool) -> Result<Duration> {
        let started = Instant::now();
        loop {
            let (well, output) = self.spoke.kubectl_output(arguments, "").await;
            if holds(well, &output) {
                return Ok(started.elapsed());
            }
            if started.elapsed() > BY_HAND {
                return Err(format!("kubectl {arguments:?}: {output}").into());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Number of events with `reason` on the hub, as a sum of their counts.
    async fn events(&self, reason: &str) -> Result<usize> {
        let field = format!("--field-selector=reason={reason}");
        let names = self.hub.kubectl(&["get", "events", "-A", &field, "-o", "name"], "").await?;
        Ok(names.lines().count())
    }
}

#[test]
fn knative_runs_beside_the_operator() {
    if std::env::var_os("KNATIVE_CONTROLLERS").is_none() {
        skip(LONG_BUILD, "KNATIVE_CONTROLLERS is not set (make test-knative)");
        return;
    }
    let releases = releases::best();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Err(error) = runtime.block_on(run(&releases)) {
        panic!("{error}");
    }
}

async fn run(releases: &releases::Releases) -> Result<()> {
    let (hub, spoke) = tokio::try_join!(Cluster::hub("hub"), Cluster::start("spoke", SPOKE))?;
    let programs = Programs::new(&["1.22", "1.21"], spoke.dir())?;
    let _node = Node::start(&spoke, programs).await?;
    let plugins = tempfile::tempdir()?;
    let product = Product::install(&hub, releases, product::values(&[]), plugins.path()).await?;
    product::register(&hub, &spoke, "spoke").await?;
    hub.kubectl(&["create", "namespace", NAMESPACE], "").await?;
    let before = remaining::objects(&spoke.client()).await?;
    let world = World { hub, spoke, begin: Instant::now() };
    let config = json!({"network": {"ingress-class": "kourier.ingress.networking.knative.dev"}});
    let mut bad = config.clone();
    bad["network"]["domain-template"] = json!("{{.Nothing}}");

    world.apply(VERSIONS[0], &config).await?;
    world.ready(VERSIONS[0]).await?;
    world.report("Serving and Eventing 1.21 are Ready; Knative's webhooks admit what the operator applies");
    let time = world.service("first").await?;
    world.report(&format!("a Knative Service turned Ready in {:.1} s, through Envoy", time.as_secs_f64()));
    let broker = json!({"apiVersion": "eventing.knative.dev/v1", "kind": "Broker", "metadata": {"name": "broker"}});
    let trigger = json!({"apiVersion": "eventing.knative.dev/v1", "kind": "Trigger", "metadata": {"name": "trigger"},
        "spec": {"broker": "broker", "subscriber": {"ref": {"apiVersion": "serving.knative.dev/v1", "kind": "Service", "name": "first"}}}});
    let time = world.created(&broker, Duration::from_secs(120)).await?;
    let more = world.created(&trigger, Duration::from_secs(120)).await?;
    world.report(&format!(
        "Broker and Trigger turned Ready in {:.1} and {:.1} s",
        time.as_secs_f64(),
        more.as_secs_f64()
    ));

    // What Knative's webhook refuses is in the status.
    world.apply(VERSIONS[0], &bad).await?;
    let refused = "--for=condition=InstallSucceeded=False";
    world.hub.kubectl(&["wait", "knativeserving/serving", "-n", NAMESPACE, refused, "--timeout=30s"], "").await?;
    let path = "-o=jsonpath={.status.conditions[?(@.type==\"InstallSucceeded\")].message}";
    let message = world.hub.kubectl(&["get", "knativeserving/serving", "-n", NAMESPACE, path], "").await?;
    assert!(message.contains("config-network") && message.contains("admission webhook"), "{message}");
    world.report(&format!("InstallSucceeded is False: {message}"));
    world.apply(VERSIONS[0], &config).await?;
    world.ready(VERSIONS[0]).await?;

    by_hand(&world).await?;
    rest(&world, &product).await?;

    world.apply(VERSIONS[1], &config).await?;
    world.ready(VERSIONS[1]).await?;
    world.report("Serving and Eventing 1.22 are Ready, after the storage migration");
    let jobs = ["get", "jobs", "-A", "-o=jsonpath={range .items[*]}{.metadata.name}={.status.succeeded} {end}"];
    let jobs = world.spoke.kubectl(&jobs, "").await?;
    assert!(jobs.contains("storage-version-migration-serving"), "{jobs}");
    assert!(jobs.split_whitespace().all(|job| job.ends_with("=1")), "{jobs}");
    world.report(&format!("Jobs: {}", jobs.trim()));
    let time = world.service("second").await?;
    world.report(&format!("another Knative Service turned Ready in {:.1} s", time.as_secs_f64()));

    // Users delete what they created.
    for resource in
        ["trigger.eventing.knative.dev/trigger", "broker.eventing.knative.dev/broker", "ksvc/first", "ksvc/second"]
    {
        world.spoke.kubectl(&["delete", resource, "--timeout=60s"], "").await?;
    }
    // Eventing's controller removes the finalizers of what it made of them.
    world
        .until(&["get", "subscriptions.messaging.knative.dev", "-A", "-o", "name"], |well, text| {
            well && text.is_empty()
        })
        .await?;
    let all = ["delete", "knativeserving/serving", "knativeeventing/eventing", "-n", NAMESPACE, "--timeout=120s"];
    world.hub.kubectl(&all, "").await?;
    let left = remaining::remaining(&world.spoke, &before).await?;
    assert!(left.is_empty(), "{left:?}");
    world.report("both are deleted; nothing but CRDs is left on the spoke");
    assert_eq!(world.events("DriftFight").await?, 0);
    Ok(())
}

/// Deletes and edits what is installed: it is repaired, and Knative works.
async fn by_hand(world: &World) -> Result<()> {
    let serving = ["-n", "knative-serving"];
    let with = |arguments: &[&'static str]| [arguments, &serving].concat();
    world.spoke.kubectl(&with(&["delete", "deployment", "webhook"]), "").await?;
    let available = with(&["get", "deployment", "webhook", "-o=jsonpath={.status.availableReplicas}"]);
    let time = world.until(&available, |well, text| well && text == "1").await?;
    world.report(&format!("Knative's webhook was deleted, and is available after {:.1} s", time.as_secs_f64()));
    world.spoke.kubectl(&with(&["delete", "secret", "webhook-certs"]), "").await?;
    let filled = with(&["get", "secret", "webhook-certs", "-o=jsonpath={.data}"]);
    let time = world.until(&filled, |well, text| well && text.contains("server-cert.pem")).await?;
    world.report(&format!("its certificates were deleted, and are there after {:.1} s", time.as_secs_f64()));
    let edit = r#"{"data": {"ingress-class": "somebody.example/ingress"}}"#;
    world.spoke.kubectl(&with(&["patch", "configmap", "config-network", "--type=merge", "-p", edit]), "").await?;
    let edited = with(&["get", "configmap", "config-network", "-o=jsonpath={.data.ingress-class}"]);
    let time = world.until(&edited, |well, text| well && text.starts_with("kourier")).await?;
    world.report(&format!("config-network was edited, and is repaired after {:.1} s", time.as_secs_f64()));
    let time = world.service("third").await?;
    world.report(&format!("a Knative Service turned Ready in {:.1} s", time.as_secs_f64()));
    world.spoke.kubectl(&["delete", "ksvc/third", "--timeout=60s"], "").await?;
    Ok(())
}

/// Minutes of rest: the operator writes nothing.
async fn rest(world: &World, product: &Product) -> Result<()> {
    let minutes = std::env::var("KNATIVE_REST_MINUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(10);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (mut on_spoke, mut on_hub) = (Audit::of(&world.spoke, SPOKE_USER)?, Audit::of(&world.hub, product::HUB_USER)?);
    let repairs = world.events("DriftRepaired").await?;
    tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
    let is_write =
        |request: &knative_operator_tests::measure::Request| request.writes() && !request.target.contains("leases");
    let (all, mut hub) = (on_spoke.take()?, on_hub.take()?);
    let (spoke, requests) = (all.iter().filter(|r| is_write(r)).cloned().collect::<Vec<_>>(), by_verb(&all));
    hub.retain(is_write);
    assert!(spoke.is_empty() && hub.is_empty(), "writes at rest: {spoke:?} {hub:?}");
    assert_eq!(world.events("DriftRepaired").await?, repairs, "repairs at rest");
    assert!(product.operator.process.pid().is_ok());
    world.report(&format!("{minutes} minutes of rest: no write, no repair; requests to the spoke: {requests}"));
    Ok(())
}
