//! Many spokes, simulated: dead ones hold up nobody, and replicas share the living.

use std::fmt::Write;
use std::time::{Duration, Instant};

use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::kubelet::Pod;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::sim::Sim;
use knative_operator_tests::{Result, http, releases};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::{apply, namespace, provider, ready, resource, run, says, script};

const LIMIT: Duration = Duration::from_secs(60);
/// What is deleted on a spoke to see whether anybody looks after it.
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/knative-serving/deployments/controller";

fn serving(number: usize) -> Value {
    let name = format!("spoke-{number}");
    resource(Component::Serving, "fleet", &name, Some(&name), json!({"version": releases::small().serving}))
}

/// A hub with the product, whose plugin `token` gives a token, and `hangs` nothing ever.
async fn hub(name: &str, shards: u32) -> Result<(Cluster, Product, tempfile::TempDir)> {
    let (hub, plugins) = (Cluster::hub(name).await?, tempfile::tempdir()?);
    let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "simulated"}});
    script(&plugins.path().join("token"), &format!("#!/bin/sh\necho '{credential}'\n"))?;
    script(&plugins.path().join("hangs"), "#!/bin/sh\nsleep 3600\n")?;
    let mut values = product::values(&[provider("token"), provider("hangs")]);
    values["knative_operator"]["multicluster"]["shards"] = json!(shards);
    let product = Product::install(&hub, &releases::small(), values, plugins.path()).await?;
    namespace(&hub, "fleet").await?;
    Ok((hub, product, plugins))
}

/// The value of metric `name` that `pod` tells, the sum of all its series.
async fn metric(pod: &Pod, name: &str) -> Result<usize> {
    let (_, text) = http::get((pod.address, 9090).into(), "/metrics").await?;
    let series = text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])));
    series.map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse::<usize>()?)).sum()
}

/// Asks until `holds`: there is nothing to watch.
async fn until(what: &str, holds: impl AsyncFn() -> Result<bool>) -> Result<Duration> {
    let started = Instant::now();
    while started.elapsed() < LIMIT {
        if holds().await.unwrap_or_default() {
            return Ok(started.elapsed());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(format!("not {what} after {LIMIT:?}").into())
}

/// Deletes a Deployment on each of `spokes`, and waits until it is back. If it isn't, what `pods` say of those spokes is told.
async fn repaired(sim: &Sim, spokes: std::ops::Range<usize>, pods: &[&Pod]) -> Result<Duration> {
    let gone = spokes.clone().all(|n| sim.spoke(n).delete(DEPLOYMENT));
    assert!(gone, "there is no Deployment to delete");
    let away = || spokes.clone().filter(|n| sim.spoke(*n).back(DEPLOYMENT).is_none()).collect::<Vec<_>>();
    until("repaired everywhere", async || Ok(away().is_empty())).await.map_err(|error| {
        let mut told = format!("{error}: missing on {:?}", away());
        for (pod, number) in pods.iter().flat_map(|pod| away().into_iter().map(move |n| (pod, n))) {
            let log = pod.process.log();
            let about = |l: &&str| l.contains(&format!("spoke-{number}\"")) || l.contains("watch");
            let about: Vec<_> = log.lines().filter(about).collect();
            let last = about[about.len().saturating_sub(40)..].join("\n");
            let _ = write!(told, "\n{} of spoke-{number}:\n{last}", pod.address);
        }
        told.into()
    })
}

#[test]
fn dead_spokes_hold_up_nobody() {
    run(async {
        const LIVING: usize = 12;
        const DEAD: usize = 18;
        let (hub, product, _plugins) = hub("dead-spokes", 1).await?;
        let sim = Sim::start(LIVING).await?;
        // The dead ones come first: whatever they could take away is taken.
        for number in LIVING..LIVING + DEAD {
            let access = if number % 2 == 0 { sim.black_hole("token") } else { sim.access(0, "hangs") };
            product::profile(&hub, &format!("spoke-{number}"), &access).await?;
            apply(&hub, &serving(number)).await?;
        }
        for number in 0..LIVING {
            product::profile(&hub, &format!("spoke-{number}"), &sim.access(number, "token")).await?;
            apply(&hub, &serving(number)).await?;
        }
        for number in 0..LIVING {
            ready(&hub, &serving(number)).await?;
        }
        for number in LIVING..LIVING + DEAD {
            let reason = if number % 2 == 0 { "RemoteClusterUnreachable" } else { "AccessProviderFailed" };
            says(&hub, &serving(number), "TargetClusterResolved", reason, "").await?;
        }
        eprintln!(
            "repaired on {LIVING} spokes beside {DEAD} dead ones after {:.1?}",
            repaired(&sim, 0..LIVING, &[&product.operator]).await?
        );
        // At rest nothing is asked of the living, and there are two connections to each at most.
        until("at rest", async || {
            sim.take_requests();
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok(sim.take_requests().is_empty())
        })
        .await?;
        let (open, had) = sim.connections();
        assert!((1..=2).contains(&open) && had <= 2, "{open} connections to one spoke, and {had} at some time");
        assert_eq!(metric(&product.operator, "knative_operator_target_cluster_resolved").await?, LIVING);
        Ok(())
    });
}

#[test]
fn replicas_share_the_fleet_and_take_over_from_each_other() {
    run(async {
        const SPOKES: usize = 12;
        const SHARDS: usize = 6;
        let (hub, mut product, _plugins) = hub("shards", 6).await?;
        let sim = Sim::start(SPOKES).await?;
        for number in 0..SPOKES {
            product::profile(&hub, &format!("spoke-{number}"), &sim.access(number, "token")).await?;
            apply(&hub, &serving(number)).await?;
        }
        for number in 0..SPOKES {
            ready(&hub, &serving(number)).await?;
        }
        let held = async |pod: &Pod| metric(pod, "knative_operator_shards_held").await;
        assert_eq!(held(&product.operator).await?, SHARDS, "the first replica has all of them");

        // Another one comes, and gets half of them.
        let mut second = product.another_operator(&hub).await?;
        let halves = async || Ok((held(&product.operator).await?, held(&second).await?) == (SHARDS / 2, SHARDS / 2));
        eprintln!("shared after {:.1?}", until("shared", halves).await?);
        let resolved = async |pod: &Pod| metric(pod, "knative_operator_target_cluster_resolved").await;
        until("all looked after", async || Ok(resolved(&product.operator).await? + resolved(&second).await? == SPOKES))
            .await?;
        repaired(&sim, 0..SPOKES, &[&product.operator, &second]).await?;

        // It dies: its spokes are looked after again.
        second.process.signal(Signal::KILL)?;
        second.process.wait()?;
        let lost = Instant::now();
        repaired(&sim, 0..SPOKES, &[&product.operator]).await?;
        eprintln!("all looked after again after {:.1?}", lost.elapsed());
        assert_eq!(held(&product.operator).await?, SHARDS);

        // One that ends in order gives back what it has.
        let third = product.another_operator(&hub).await?;
        until("shared again", async || {
            Ok((held(&product.operator).await?, held(&third).await?) == (SHARDS / 2, SHARDS / 2))
        })
        .await?;
        product.operator.process.signal(Signal::TERM)?;
        assert_eq!(product.operator.process.wait()?, 0);
        let given = until("given back", async || Ok(held(&third).await? == SHARDS)).await?;
        eprintln!("given back after {given:.1?}");
        repaired(&sim, 0..SPOKES, &[&third]).await?;
        // No spoke is looked after by two: each has two connections at most, once those of its last owner are closed.
        until("two connections at most", async || Ok(sim.connections().0 <= 2)).await?;
        Ok(())
    });
}
