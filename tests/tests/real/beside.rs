//! Serving and Eventing on a spoke, side by side with the operator: their webhooks admit what it
//! applies, their controllers write what it leaves to them; it repairs, rests, and upgrades both by
//! a minor version.
//!
//! `KNATIVE_REST_MINUTES` is the time at rest (default 5).

use std::time::{Duration, Instant};

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::measure::{Audit, Request, by_verb};
use knative_operator_tests::product::{FLEET, HUB_USER, SPOKE_USER, register};
use knative_operator_tests::real::product::ready;
use knative_operator_tests::real::{images, product, traffic};
use knative_operator_tests::{Result, remaining};
use serde_json::{Value, json};

use crate::eventing::{event, scaled};
use crate::support::{ANSWER, NAMESPACE, Report, run, warnings};

/// Minor versions, and versions of Serving and Eventing.
const EARLIER: (&str, [&str; 2]) = ("1.21", ["1.21.3", "1.21.4"]);
const LATER: [&str; 2] = ["1.22.1", "1.22.2"];
/// Namespace of the resources on the hub.
const PLACE: &str = "knative";
/// Time limit of a repair.
const REPAIR: Duration = Duration::from_secs(60);

struct World {
    hub: Cluster,
    spoke: Cluster,
    report: Report,
}

impl World {
    /// Applies both resources; `network`: further keys of `config-network`.
    async fn apply(&self, versions: [&str; 2], network: &Value) -> Result<()> {
        let [mut serving, mut eventing] = product::both(versions);
        for spec in [&mut serving, &mut eventing] {
            spec["clusterProfileRef"] = json!({"name": "spoke-1", "namespace": FLEET});
        }
        for (key, value) in network.as_object().into_iter().flatten() {
            serving["config"]["network"][key] = value.clone();
        }
        let resource = |kind: &str, name: &str, spec: Value| {
            json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": kind,
                "metadata": {"name": name, "namespace": PLACE}, "spec": spec})
        };
        let items = [resource("KnativeServing", "serving", serving), resource("KnativeEventing", "eventing", eventing)];
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        self.hub.kubectl(&["apply", "-f", "-"], &list.to_string()).await.map(drop)
    }

    /// Waits until both resources are Ready in `versions`.
    async fn ready(&self, versions: [&str; 2]) -> Result<()> {
        for (resource, version) in ["knativeserving/serving", "knativeeventing/eventing"].into_iter().zip(versions) {
            let version = format!("--for=jsonpath={{.status.version}}={version}");
            let wait = ["wait", resource, "-n", PLACE, &version, "--timeout=240s"];
            if let Err(error) = self.hub.kubectl(&wait, "").await {
                return Err(format!("{error}\n{}", product::pods(&self.spoke).await).into());
            }
            ready(&self.hub, resource, PLACE).await?;
        }
        Ok(())
    }

    /// Waits until `holds` is true for the output of kubectl with `arguments` on the spoke.
    async fn until(&self, arguments: &[&str], holds: impl Fn(bool, &str) -> bool) -> Result<Duration> {
        let started = Instant::now();
        loop {
            let (well, output) = self.spoke.kubectl_output(arguments, "").await;
            if holds(well, &output) {
                return Ok(started.elapsed());
            }
            if started.elapsed() > REPAIR {
                return Err(format!("kubectl {arguments:?}: {output}").into());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }

    /// Number of events with `reason` on the hub.
    async fn events(&self, reason: &str) -> Result<usize> {
        let field = format!("--field-selector=reason={reason}");
        let names = self.hub.kubectl(&["get", "events", "-A", &field, "-o", "name"], "").await?;
        Ok(names.lines().count())
    }

    fn line(&mut self, text: &str) {
        self.report.line(text);
    }
}

#[test]
fn knative_lives_beside_the_operator() {
    run(async {
        let registry = images::registry_with_eventing().await?;
        let (minor, earlier) = EARLIER;
        tokio::task::block_in_place(|| images::push_minor(registry, minor))?;
        let (hub, spoke) = tokio::try_join!(Cluster::real("hub", registry), Cluster::real("spoke", registry))?;
        hub.connect(&spoke)?;
        product::install(&hub, &product::values()).await?;
        register(&hub, &spoke, "spoke-1").await?;
        hub.kubectl(&["create", "namespace", PLACE], "").await?;
        let before = remaining::objects(&spoke.client()).await?;
        let mut world = World { hub, spoke, report: Report::new() };
        let none = json!({});
        world.apply(earlier, &none).await?;
        world.ready(earlier).await?;
        world.line(&format!("Serving {} and Eventing {} are Ready", earlier[0], earlier[1]));
        event(&mut world.report, &world.spoke, "a source").await?;
        scaled(&mut world.report, &world.spoke).await?;
        let warned = warnings(&world.hub).await?;
        assert!(warned.is_empty(), "Warning events of healthy installations: {warned:?}");

        refused(&mut world, earlier).await?;
        by_hand(&mut world).await?;
        rest(&mut world).await?;

        world.apply(LATER, &none).await?;
        world.ready(LATER).await?;
        world.line(&format!("Serving {} and Eventing {} are Ready", LATER[0], LATER[1]));
        let jobs = ["get", "jobs", "-A", "-o=jsonpath={range .items[*]}{.metadata.name}={.status.succeeded} {end}"];
        let jobs = world.spoke.kubectl(&jobs, "").await?;
        assert!(jobs.contains("storage-version-migration-serving"), "{jobs}");
        assert!(jobs.split_whitespace().all(|job| job.ends_with("=1")), "{jobs}");
        world.line(&format!("Jobs: {}", jobs.trim()));
        event(&mut world.report, &world.spoke, "a source after the upgrade").await?;
        deleted(&mut world).await?;
        let left = remaining::remaining(&world.spoke, &before).await?;
        assert!(left.is_empty(), "{left:?}");
        world.line("both are deleted; nothing but CRDs is left on the spoke");
        assert_eq!(world.events("DriftFight").await?, 0);
        Ok(())
    });
}

/// What Knative's webhook refuses is in the status.
async fn refused(world: &mut World, versions: [&str; 2]) -> Result<()> {
    world.apply(versions, &json!({"domain-template": "{{.Nothing}}"})).await?;
    let place = ["knativeserving/serving", "-n", PLACE];
    let refused = ["--for=condition=InstallSucceeded=False", "--timeout=30s"];
    world.hub.kubectl(&[&["wait"][..], &place, &refused].concat(), "").await?;
    let path = ["-o=jsonpath={.status.conditions[?(@.type==\"InstallSucceeded\")].message}"];
    let message = world.hub.kubectl(&[&["get"][..], &place, &path].concat(), "").await?;
    assert!(message.contains("config-network") && message.contains("admission webhook"), "{message}");
    world.line(&format!("InstallSucceeded is False: {message}"));
    world.apply(versions, &json!({})).await?;
    world.ready(versions).await
}

/// Deletes and edits what is installed: it is repaired, and Knative works.
async fn by_hand(world: &mut World) -> Result<()> {
    let with = |arguments: &[&'static str]| [arguments, &["-n", NAMESPACE][..]].concat();
    world.spoke.kubectl(&with(&["delete", "deployment", "webhook", "--wait=false"]), "").await?;
    let available = with(&["get", "deployment", "webhook", "-o=jsonpath={.status.availableReplicas}"]);
    let time = world.until(&available, |well, text| well && text == "1").await?;
    world.line(&format!("Knative's webhook was deleted, and is available after {:.1} s", time.as_secs_f64()));
    world.spoke.kubectl(&with(&["delete", "secret", "webhook-certs"]), "").await?;
    let filled = with(&["get", "secret", "webhook-certs", "-o=jsonpath={.data}"]);
    let time = world.until(&filled, |well, text| well && text.contains("server-cert.pem")).await?;
    world.line(&format!("its certificates were deleted, and are there after {:.1} s", time.as_secs_f64()));
    let edit = r#"{"data": {"ingress-class": "somebody.example/ingress"}}"#;
    world.spoke.kubectl(&with(&["patch", "configmap", "config-network", "--type=merge", "-p", edit]), "").await?;
    let edited = with(&["get", "configmap", "config-network", "-o=jsonpath={.data.ingress-class}"]);
    let time = world.until(&edited, |well, text| well && text.starts_with("kourier")).await?;
    world.line(&format!("config-network was edited, and is repaired after {:.1} s", time.as_secs_f64()));
    let service = traffic::service("third", &json!({})).to_string();
    world.spoke.kubectl(&["apply", "-f", "-"], &service).await?;
    ready(&world.spoke, "ksvc/third", "default").await?;
    let gateway = traffic::gateway(&world.spoke).await?;
    traffic::until_answer(gateway, &traffic::host("third"), ANSWER).await?;
    world.line("another Knative Service answers");
    world.spoke.kubectl(&["delete", "ksvc/third", "--timeout=60s"], "").await.map(drop)
}

/// Minutes of rest: the operator writes nothing.
async fn rest(world: &mut World) -> Result<()> {
    let minutes = std::env::var("KNATIVE_REST_MINUTES").ok().and_then(|text| text.parse().ok()).unwrap_or(5);
    tokio::time::sleep(Duration::from_secs(20)).await;
    let (mut on_spoke, mut on_hub) = (Audit::of(&world.spoke, SPOKE_USER)?, Audit::of(&world.hub, HUB_USER)?);
    let repairs = world.events("DriftRepaired").await?;
    tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
    let is_write = |request: &Request| request.writes() && !request.target.contains("leases");
    let (all, mut hub) = (on_spoke.take()?, on_hub.take()?);
    let (spoke, requests) = (all.iter().filter(|r| is_write(r)).cloned().collect::<Vec<_>>(), by_verb(&all));
    hub.retain(is_write);
    assert!(spoke.is_empty() && hub.is_empty(), "writes at rest: {spoke:?} {hub:?}");
    assert_eq!(world.events("DriftRepaired").await?, repairs, "repairs at rest");
    world.line(&format!("{minutes} minutes of rest: no write, no repair; requests to the spoke: {requests}"));
    Ok(())
}

/// Users delete what they created, then both resources are deleted.
async fn deleted(world: &mut World) -> Result<()> {
    for resource in ["pingsource/ping", "trigger/hello", "broker/default", "ksvc/hello", "ksvc/busy"] {
        world.spoke.kubectl(&["delete", resource, "--timeout=60s"], "").await?;
    }
    // Eventing's controller removes the finalizers of what it made of them.
    let subscriptions = ["get", "subscriptions.messaging.knative.dev", "-A", "-o", "name"];
    world.until(&subscriptions, |well, text| well && text.is_empty()).await?;
    let all = ["knativeserving/serving", "knativeeventing/eventing", "-n", PLACE, "--timeout=240s"];
    if let Err(error) = world.hub.kubectl(&[&["delete"][..], &all].concat(), "").await {
        return Err(format!("{error}\n{}", product::pods(&world.spoke).await).into());
    }
    Ok(())
}
