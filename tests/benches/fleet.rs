//! Cost of a growing fleet: simulated spokes with one Serving each, a real hub, and the real
//! operator. Prints a table for 1, 10, 100 and 1,000 spokes: time until all are Ready, memory per
//! spoke, connections, idle requests, a restart, and the time of repairs with and without
//! unreachable spokes. Asserts nothing.
//!
//! `make bench`. Environment: `BENCH_FLEET` is the maximum number of spokes (1000; the last of
//! several), `BENCH_IDLE` the number of idle seconds (10).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use knative_operator_shared::api::KnativeServing;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::kubelet;
use knative_operator_tests::measure;
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::sim::Sim;
use knative_operator_tests::sim::hub::{TOKEN_PLUGIN, each, name, profile, sizes, status};
use knative_operator_tests::{Result, http};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use rustix::process::Signal;
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(900);
/// Time for memory to settle.
const SETTLE: Duration = Duration::from_secs(15);
/// The Deployment that is deleted on each spoke to measure repairs.
const DEPLOYMENT: &str = "/apis/apps/v1/namespaces/knative-serving/deployments/controller";

#[tokio::main]
async fn main() -> Result<()> {
    knative_operator_runtime::install_crypto();
    let number = |name: &str, default: usize| std::env::var(name).ok().and_then(|s| s.parse().ok()).unwrap_or(default);
    let most = sizes(1000)?.last().copied().unwrap_or_default();
    let idle = Duration::from_secs(number("BENCH_IDLE", 10) as u64);
    let releases = releases::best();
    let sim = Sim::start(most).await?;
    let hub = Cluster::hub("hub").await?;
    let plugins = hub.dir().join("own-plugins");
    std::fs::create_dir_all(&plugins)?;
    kubelet::script(&plugins.join("token"), TOKEN_PLUGIN)?;
    let provider = json!({"name": "sim", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/access-plugins/own/token"}});
    let mut values = product::values(&[provider]);
    values["knative_operator"]["knative_operator"]["logLevel"] = json!("info");
    let product = Product::install(&hub, &releases, values, &plugins).await?;
    hub.kubectl(&["create", "namespace", "fleet"], "").await?;
    tokio::time::sleep(SETTLE).await;
    let base = measure::resident(product.operator.process.pid()?)?;
    println!("releases: {}; the operator without any resource: {:.1} MB\n", releases.dir.display(), mb(base));
    println!(
        "{:>6} {:>9} {:>9} {:>10} {:>9} {:>12} {:>12} {:>13} {:>10} {:>10} {:>20} {:>22}",
        "spokes",
        "all Ready",
        "CPU",
        "resident",
        "a spoke",
        "connections",
        "writes each",
        "idle requests",
        "restart",
        "resident",
        "repair p50/p99",
        "a tenth dead p50/p99"
    );
    let mut bench = Bench { hub, sim, product, releases, base, spokes: 0 };
    for spokes in [1, 10, 100, 1000].into_iter().filter(|n| *n <= most) {
        bench.grow(spokes, idle).await?;
    }
    Ok(())
}

struct Bench {
    hub: Cluster,
    sim: Sim,
    product: Product,
    releases: Releases,
    base: u64,
    spokes: usize,
}

impl Bench {
    async fn grow(&mut self, spokes: usize, idle: Duration) -> Result<()> {
        let (client, pid) = (self.hub.client(), self.product.operator.process.pid()?);
        let new: Vec<usize> = (self.spokes..spokes).collect();
        each(&new, |n| profile(client.clone(), n, json!({}), self.sim.access(n, "sim"))).await?;
        self.sim.take_requests();
        let (started, cpu) = (Instant::now(), measure::cpu(pid)?);
        each(&new, |n| resource(client.clone(), n, self.releases.serving)).await?;
        self.all_true(spokes, "knative_operator_ready").await?;
        let (ready, cpu) = (started.elapsed(), measure::cpu(pid)?.saturating_sub(cpu));
        let written = self.sim.take_requests();
        self.spokes = spokes;
        tokio::time::sleep(SETTLE).await;
        let (resident, (open, had)) = (measure::resident(pid)?, self.sim.connections());

        self.sim.take_requests();
        tokio::time::sleep(idle).await;
        let rest = self.sim.take_requests();

        let restarted = Instant::now();
        self.product.restart_operator(&self.hub, Signal::TERM).await?;
        self.all_true(spokes, "knative_operator_target_cluster_resolved").await?;
        let restarted = restarted.elapsed();
        tokio::time::sleep(SETTLE).await;
        let again = measure::resident(self.product.operator.process.pid()?)?;
        let writes = writes(&self.sim.take_requests());

        let healthy = self.repair(0..spokes).await?;
        let dead = spokes / 10;
        let tenth = if dead > 0 {
            let hole = self.sim.black_hole("sim");
            let gone: Vec<usize> = (0..dead).collect();
            each(&gone, |n| status(client.clone(), n, hole.clone())).await?;
            tokio::time::sleep(SETTLE).await;
            let (p50, p99) = self.repair(dead..spokes).await?;
            each(&gone, |n| status(client.clone(), n, self.sim.access(n, "sim"))).await?;
            self.all_true(spokes, "knative_operator_target_cluster_resolved").await?;
            format!("{:.0}/{:.0} ms", millis(p50), millis(p99))
        } else {
            "-".to_owned()
        };
        println!(
            "{spokes:>6} {:>8.1}s {:>8.1}s {:>7.1} MB {:>6.0} KB {:>12} {:>12.1} {:>13} {:>9.1}s {:>7.1} MB {:>20} {:>22}",
            ready.as_secs_f64(),
            cpu.as_secs_f64(),
            mb(resident),
            kb(resident.saturating_sub(self.base), spokes),
            format!("{open} (had {had})"),
            kb(writes_of(&written), new.len()),
            format!("{rest:?}"),
            restarted.as_secs_f64(),
            mb(again),
            format!("{:.0}/{:.0} ms", millis(healthy.0), millis(healthy.1)),
            tenth
        );
        if writes > 0 {
            println!("       the restart wrote {writes} times");
        }
        Ok(())
    }

    /// Waits until metric `name` is 1 for `spokes` resources.
    async fn all_true(&self, spokes: usize, name: &str) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        let mut count = 0;
        while Instant::now() < deadline {
            if let Ok((200, text)) = http::get(self.product.metrics(), "/metrics").await {
                count =
                    text.lines().filter(|line| line.starts_with(&format!("{name}{{")) && line.ends_with(" 1")).count();
                if count == spokes {
                    return Ok(());
                }
            }
            tokio::time::sleep(Duration::from_millis(if spokes > 100 { 500 } else { 20 })).await;
        }
        Err(format!("{name} is 1 of {count} resources, not {spokes}, after {LIMIT:?}").into())
    }

    /// Deletes a Deployment on each of `spokes` in turn; returns median and 99th percentile of the
    /// time until it is back.
    async fn repair(&self, spokes: std::ops::Range<usize>) -> Result<(Duration, Duration)> {
        let mut times = Vec::new();
        for spoke in spokes.map(|n| self.sim.spoke(n)) {
            let deleted = Instant::now();
            if !spoke.delete(DEPLOYMENT) {
                return Err("there is no Deployment to delete".into());
            }
            while spoke.back(DEPLOYMENT).is_none() {
                if deleted.elapsed() > Duration::from_secs(60) {
                    return Err("the operator did not repair the deleted Deployment within a minute".into());
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
            times.push(spoke.back(DEPLOYMENT).unwrap_or(deleted).duration_since(deleted));
        }
        times.sort();
        let at = |percent: usize| times[(times.len() * percent / 100).min(times.len() - 1)];
        Ok((at(50), at(99)))
    }
}

async fn resource(hub: Client, number: usize, version: &str) -> Result<()> {
    let serving = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing", "metadata": {"name": name(number), "namespace": "fleet"},
        "spec": {"version": version, "ingress": {"kourier": {"enabled": true}}, "clusterProfileRef": {"name": name(number), "namespace": FLEET}}});
    let api = Api::<KnativeServing>::namespaced(hub, "fleet");
    Ok(api.patch(&name(number), &PatchParams::apply("bench"), &Patch::Apply(&serving)).await.map(drop)?)
}

fn writes(requests: &HashMap<&'static str, usize>) -> usize {
    requests.iter().filter(|(verb, _)| !matches!(**verb, "get" | "watch")).map(|(_, count)| count).sum()
}

fn writes_of(requests: &HashMap<&'static str, usize>) -> u64 {
    writes(requests) as u64
}

#[allow(clippy::cast_precision_loss)] // for people
fn mb(kib: u64) -> f64 {
    kib as f64 / 1024.0
}

#[allow(clippy::cast_precision_loss)] // for people
fn kb(all: u64, of: usize) -> f64 {
    all as f64 / of as f64
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1000.0
}
