//! Many simulated spokes: unreachable ones don't delay others, and replicas share the reachable
//! ones.

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

use crate::support::{apply, has_condition, namespace, provider, ready, resource, run, script};

const LIMIT: Duration = knative_operator_tests::wait::LIMIT;
/// The Deployment that is deleted on a spoke to check that it is managed.
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/knative-serving/deployments/controller";

fn serving(number: usize) -> Value {
    let name = format!("spoke-{number}");
    resource(Component::Serving, "fleet", &name, Some(&name), json!({"version": releases::small().serving}))
}

/// A hub with the operator; its plugin `token` returns the name of the replica as a token, and
/// `hangs` never returns.
async fn hub(name: &str, shards: u32) -> Result<(Cluster, Product, tempfile::TempDir)> {
    let (hub, plugins) = (Cluster::hub(name).await?, tempfile::tempdir()?);
    let credential = json!({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": {"token": "'$POD_NAME'"}});
    script(&plugins.path().join("token"), &format!("#!/bin/sh\necho '{credential}'\n"))?;
    script(&plugins.path().join("hangs"), "#!/bin/sh\nsleep 3600\n")?;
    let mut values = product::values(&[provider("token"), provider("hangs")]);
    values["knative_operator"]["multicluster"]["shards"] = json!(shards);
    let product = Product::create(&hub, &releases::small(), values, plugins.path()).await?;
    namespace(&hub, "fleet").await?;
    Ok((hub, product, plugins))
}

/// The sum of all series of metric `name` of `pod`.
async fn metric(pod: &Pod, name: &str) -> Result<usize> {
    let (_, text) = http::get((pod.address, 9090).into(), "/metrics").await?;
    let series = text.lines().filter(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with([' ', '{'])));
    series.map(|line| Ok(line.rsplit(' ').next().unwrap_or_default().parse::<usize>()?)).sum()
}

/// Polls until `holds`, since nothing can be watched.
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

/// Deletes a Deployment on each of `spokes`, and waits until it is back. On failure, prints the
/// logs of `pods` about those spokes.
async fn repaired(sim: &Sim, spokes: std::ops::Range<usize>, pods: &[&Pod]) -> Result<Duration> {
    let gone = spokes.clone().all(|n| sim.spoke(n).delete(DEPLOYMENT));
    assert!(gone, "there is no Deployment to delete");
    let away = || spokes.clone().filter(|n| sim.spoke(*n).back(DEPLOYMENT).is_none()).collect::<Vec<_>>();
    until("repaired everywhere", async || Ok(away().is_empty())).await.map_err(|error| {
        let mut message = format!("{error}: missing on {:?}", away());
        for (pod, number) in pods.iter().flat_map(|pod| away().into_iter().map(move |n| (pod, n))) {
            let log = pod.process.log();
            let about = |l: &&str| l.contains(&format!("spoke-{number}\"")) || l.contains("watch");
            let about: Vec<_> = log.lines().filter(about).collect();
            let last = about[about.len().saturating_sub(40)..].join("\n");
            let _ = write!(message, "\n{} of spoke-{number}:\n{last}", pod.address);
        }
        message.into()
    })
}

/// Checks that each spoke was handed over at most once since it had `managers`, and to `to`: no
/// earlier manager wrote to a spoke or started a watch there after the first such request of `to`.
/// Returns the number of spokes that were handed over, and adds `to` to their managers.
fn handed_over(sim: &Sim, managers: &mut [Vec<String>], to: &Pod) -> usize {
    let mut moved = 0;
    for (number, (known, turns)) in managers.iter_mut().zip(sim.turns()).enumerate() {
        let clients: Vec<_> = turns.iter().map(|turn| turn.client.clone()).collect();
        if clients != *known {
            known.push(to.name.clone());
            moved += 1;
        }
        assert_eq!(clients, *known, "requests to spoke-{number}, by replica: {turns:#?}");
    }
    moved
}

/// The shortest time between the last request of a manager and the first one of the next.
fn shortest_pause(sim: &Sim) -> Option<Duration> {
    let turns = sim.turns();
    let pauses = turns.iter().flat_map(|turns| turns.windows(2).map(|pair| pair[1].times.0 - pair[0].times.1));
    pauses.min()
}

#[test]
fn unreachable_spokes_delay_no_other() {
    run(async {
        const REACHABLE: usize = 12;
        const UNREACHABLE: usize = 18;
        let (hub, product, _plugins) = hub("dead-spokes", 1).await?;
        let sim = Sim::start(REACHABLE).await?;
        // The unreachable ones come first, so that they take all permits that they can.
        for number in REACHABLE..REACHABLE + UNREACHABLE {
            let access = if number % 2 == 0 { sim.black_hole("token") } else { sim.access(0, "hangs") };
            product::profile(&hub, &format!("spoke-{number}"), &access).await?;
            apply(&hub, &serving(number)).await?;
        }
        for number in 0..REACHABLE {
            product::profile(&hub, &format!("spoke-{number}"), &sim.access(number, "token")).await?;
            apply(&hub, &serving(number)).await?;
        }
        for number in 0..REACHABLE {
            ready(&hub, &serving(number)).await?;
        }
        for number in REACHABLE..REACHABLE + UNREACHABLE {
            let reason = if number % 2 == 0 { "RemoteClusterUnreachable" } else { "AccessProviderFailed" };
            has_condition(&hub, &serving(number), "TargetClusterResolved", reason, "").await?;
        }
        eprintln!(
            "repaired on {REACHABLE} spokes next to {UNREACHABLE} unreachable ones after {:.1?}",
            repaired(&sim, 0..REACHABLE, &[&product.operator]).await?
        );
        // An idle fleet sends no requests, and has at most two connections per spoke.
        until("at rest", async || {
            sim.take_requests();
            tokio::time::sleep(Duration::from_secs(2)).await;
            Ok(sim.take_requests().is_empty())
        })
        .await?;
        let (open, had) = sim.connections();
        // One that doesn't answer in time, on a loaded machine, is replaced.
        assert!((1..=2).contains(&open) && had <= 3, "{open} connections to one spoke, and {had} at some time");
        assert_eq!(metric(&product.operator, "knative_operator_target_cluster_resolved").await?, REACHABLE);
        Ok(())
    });
}

#[test]
fn replicas_share_fleet_and_take_over() {
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
        let mut managers = vec![Vec::<String>::new(); SPOKES];
        assert_eq!(handed_over(&sim, &mut managers, &product.operator), SPOKES);
        let shards = async |pod: &Pod| metric(pod, "knative_operator_shards_held").await;
        assert_eq!(shards(&product.operator).await?, SHARDS, "the first replica has all shards");

        // A second replica gets half of the shards.
        let mut second = product.another_operator(&hub).await?;
        let halves =
            async || Ok((shards(&product.operator).await?, shards(&second).await?) == (SHARDS / 2, SHARDS / 2));
        eprintln!("balanced after {:.1?}", until("shared", halves).await?);
        let resolved = async |pod: &Pod| metric(pod, "knative_operator_target_cluster_resolved").await;
        until("all spokes managed", async || {
            Ok(resolved(&product.operator).await? + resolved(&second).await? == SPOKES)
        })
        .await?;
        repaired(&sim, 0..SPOKES, &[&product.operator, &second]).await?;
        let moved = handed_over(&sim, &mut managers, &second);
        assert!((1..SPOKES).contains(&moved), "{moved} spokes have another manager");

        // It is killed: its spokes are managed again.
        second.process.signal(Signal::KILL)?;
        second.process.wait()?;
        let lost = Instant::now();
        repaired(&sim, 0..SPOKES, &[&product.operator]).await?;
        assert_eq!(handed_over(&sim, &mut managers, &product.operator), moved);
        eprintln!("all managed again after {:.1?}", lost.elapsed());
        assert_eq!(shards(&product.operator).await?, SHARDS);

        // A replica that stops in order releases its shards.
        let third = product.another_operator(&hub).await?;
        until("shared again", async || {
            Ok((shards(&product.operator).await?, shards(&third).await?) == (SHARDS / 2, SHARDS / 2))
        })
        .await?;
        product.operator.process.signal(Signal::TERM)?;
        assert_eq!(product.operator.process.wait()?, 0);
        let given = until("given back", async || Ok(shards(&third).await? == SHARDS)).await?;
        eprintln!("released after {given:.1?}");
        repaired(&sim, 0..SPOKES, &[&third]).await?;
        assert_eq!(handed_over(&sim, &mut managers, &third), SPOKES);
        eprintln!("no manager for {:.1?} at least in each handover", shortest_pause(&sim).unwrap_or_default());
        // Each spoke has at most two connections, once those of its previous owner are closed.
        until("two connections at most", async || Ok(sim.connections().0 <= 2)).await?;
        Ok(())
    });
}
