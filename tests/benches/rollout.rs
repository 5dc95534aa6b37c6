//! Cost of rollouts of KnativeFleets: simulated spokes, a real hub, and the real operator. Prints a
//! table for each number of spokes: for a rollout of one ConfigMap key in many stages, in one stage
//! with `maxConcurrent: 10%`, and in one with `maxConcurrent: 10`, where the machine is not busy:
//! time, requests to the hub, CPU time and peak memory per cluster. Then the same at rest; with an
//! operator that is killed, a hub that refuses requests (429) and one that stalls, each in the
//! middle; with unreachable clusters and 1 % that fail; and for a restart, until the operator
//! watches all clusters again. The column "growth" compares with the former number of spokes:
//! requests, CPU and memory per cluster are about the same, or something is not linear. Asserts
//! nothing.
//!
//! What a cluster needs is the time from the first write of its resource to the last write of its
//! status. "over need" is the time of the rollout, from the first write to the last status, over
//! the sum of what its clusters need, divided by the number of clusters at a time: 1 if each place
//! is always used. "next" is the time from the last status of a cluster to the write of the next
//! one.
//!
//! `make bench`. Environment: `BENCH_FLEET` has the numbers of spokes (`1000`, or
//! `10 100 1000 5000`), `BENCH_FLEETS` is the number of fleets that share them (1), of ten clusters
//! each at least, `BENCH_IDLE` the number of idle seconds (10), `BENCH_STALL` that of seconds for
//! which the hub's etcd stands still (60). `BENCH_PHASES` has the phases that follow the
//! installation (`stages tenth ten rest killed refused stalled unreachable`, all of them).

#[path = "rollout/layout.rs"]
mod layout;
#[path = "rollout/pace.rs"]
mod pace;
#[path = "rollout/table.rs"]
mod table;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use knative_operator_shared::api::KnativeFleet;
use knative_operator_shared::api::fleet::KnativeFleetStatus;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::measure::{self, Audit, Request, by_verb};
use knative_operator_tests::product::{self, HUB_USER, Product};
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::sim::Sim;
use knative_operator_tests::sim::hub::{TOKEN_PLUGIN, each, profile, sizes, status};
use knative_operator_tests::{Result, http, kubelet, wait};
use kube::Api;
use kube::api::{Patch, PatchParams};
use rustix::process::Signal;
use serde_json::json;

use self::layout::{Change, Layout, name, refusal};
use self::pace::pace;
use self::table::{Cost, Table, note};

const LIMIT: Duration = Duration::from_secs(900);
/// Time for memory to settle.
const SETTLE: Duration = Duration::from_secs(15);
/// Time until the audit log has what was answered.
const LOGGED: Duration = Duration::from_secs(2);

#[tokio::main]
async fn main() -> Result<()> {
    knative_operator_runtime::install_crypto();
    let mut former = None;
    for clusters in sizes(1000)? {
        let layout = Layout::new(clusters, number("BENCH_FLEETS", 1));
        let mut bench = Box::pin(Bench::start(layout, former)).await?;
        Box::pin(bench.run()).await?;
        former = Some(bench.table);
    }
    Ok(())
}

/// What happens in the middle of a rollout.
#[derive(Clone, Copy)]
enum Fault {
    /// The operator is killed, and started again.
    Killed,
    /// The API server refuses most requests of the operator with 429.
    Refused,
    /// The hub's etcd stands still.
    Stalled,
}

/// The start of a phase.
struct Begun {
    started: Instant,
    /// The operator, and its CPU time until then.
    cpu: (i32, Duration),
    /// The generations of the fleets.
    generations: Vec<Option<i64>>,
}

struct Bench {
    product: Product,
    hub: Cluster,
    sim: Sim,
    releases: Releases,
    audit: Audit,
    /// Memory of the operator without clusters.
    base: u64,
    layout: Layout,
    table: Table,
}

impl Bench {
    /// An operator on a hub without clusters. The table comes after `former`.
    async fn start(layout: Layout, former: Option<Table>) -> Result<Self> {
        let releases = releases::best();
        let (sim, hub) = (Sim::start(layout.clusters).await?, Cluster::hub("hub").await?);
        let plugins = hub.dir().join("own-plugins");
        std::fs::create_dir_all(&plugins)?;
        kubelet::script(&plugins.join("token"), TOKEN_PLUGIN)?;
        let provider = json!({"name": "sim", "execConfig": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/access-plugins/own/token"}});
        let mut values = product::values(&[provider]);
        values["knative_operator"]["knative_operator"]["logLevel"] = json!("info");
        values["knative_operator"]["fleet"] = json!({"enabled": true});
        let product = Product::install(&hub, &releases, values, &plugins).await?;
        hub.kubectl(&["create", "namespace", "fleet"], "").await?;
        tokio::time::sleep(SETTLE).await;
        let base = measure::resident(product.operator.process.pid()?)?;
        let audit = Audit::of(&hub, HUB_USER)?;
        let table = Table::new(layout, former);
        Ok(Self { product, hub, sim, releases, audit, base, layout, table })
    }

    async fn run(&mut self) -> Result<()> {
        let (client, layout) = (self.hub.client(), self.layout);
        let all: Vec<usize> = (0..layout.clusters).collect();
        each(&all, |n| profile(client.clone(), n, layout.labels(n), self.sim.access(n, "sim"))).await?;
        self.phase("install", None, &Change::default()).await?;
        let phases = std::env::var("BENCH_PHASES").ok();
        let phases = phases.as_deref().unwrap_or("stages tenth ten rest killed refused stalled unreachable");
        for phase in phases.split_whitespace() {
            match phase {
                "stages" => self.phase("one ConfigMap key", None, &Change::key("1")).await?,
                "tenth" => {
                    let change = Change { max_concurrent: Some(json!("10%")), ..Change::key(phase) };
                    self.phase("one key, one stage, maxConcurrent: 10%", Some(layout.tenth()), &change).await?;
                }
                "ten" => {
                    let change = Change { max_concurrent: Some(json!(10)), ..Change::key(phase) };
                    self.phase("one key, one stage, maxConcurrent: 10", Some(10), &change).await?;
                }
                "rest" => self.rest().await?,
                "killed" => self.disturbed(Fault::Killed, &Change::key(phase)).await?,
                "refused" => self.disturbed(Fault::Refused, &Change::key(phase)).await?,
                "stalled" => self.disturbed(Fault::Stalled, &Change::key(phase)).await?,
                "unreachable" => self.unreachable().await?,
                _ => return Err(format!("BENCH_PHASES: no phase {phase}").into()),
            }
        }
        Ok(())
    }

    /// A rollout of `change`. With a number of clusters of each fleet at a time, measures the pace.
    async fn phase(&mut self, title: &str, places: Option<usize>, change: &Change) -> Result<()> {
        let begun = self.begin(change).await?;
        self.rolled_out(&begun, updated, |fleet| self.layout.size(fleet)).await?;
        self.report(title, &begun, places, Vec::new()).await?;
        tokio::time::sleep(SETTLE).await;
        Ok(())
    }

    /// Nothing happens.
    async fn rest(&mut self) -> Result<()> {
        let time = Duration::from_secs(number("BENCH_IDLE", 10) as u64);
        let pid = self.product.operator.process.pid()?;
        self.audit.take()?;
        self.sim.take_requests();
        let before = measure::cpu(pid)?;
        tokio::time::sleep(time).await;
        let cpu = measure::cpu(pid)?.saturating_sub(before);
        let spokes: BTreeMap<_, _> = self.sim.take_requests().into_iter().collect();
        tokio::time::sleep(LOGGED).await;
        let hub = without_leases(self.audit.take()?);
        let memory = measure::resident(pid)?.saturating_sub(self.base);
        let requests = hub.len() + spokes.values().sum::<usize>();
        let share = cpu.as_secs_f64() * 100.0 / time.as_secs_f64();
        let text = format!("{share:.1} % of a core; to the hub: {}; to spokes: {spokes:?}", by_verb(&hub));
        self.table.row("at rest", &Cost { time, requests, cpu, memory }, None, &text);
        Ok(())
    }

    /// A rollout with a fault once half of the clusters are updated.
    async fn disturbed(&mut self, fault: Fault, change: &Change) -> Result<()> {
        let begun = self.begin(change).await?;
        self.rolled_out(&begun, updated, |fleet| self.layout.size(fleet) / 2).await?;
        let before = self.audit.take()?;
        let first = before.len();
        let title = match fault {
            Fault::Killed => {
                self.product.restart_operator(&self.hub, Signal::KILL).await?;
                "one key; operator killed in the middle".to_owned()
            }
            Fault::Refused => {
                self.hub.kubectl(&["apply", "-f", "-"], &refusal().to_string()).await?;
                "one key; the hub refuses requests (429)".to_owned()
            }
            Fault::Stalled => {
                let stall = Duration::from_secs(number("BENCH_STALL", 60) as u64);
                self.hub.suspend_etcd(true)?;
                tokio::time::sleep(stall).await;
                self.hub.suspend_etcd(false)?;
                format!("one key; the hub stalls for {} s", stall.as_secs())
            }
        };
        self.rolled_out(&begun, updated, |fleet| self.layout.size(fleet)).await?;
        let requests = self.report(&title, &begun, None, before).await?;
        if matches!(fault, Fault::Refused) {
            self.hub.kubectl(&["delete", "-f", "-"], &refusal().to_string()).await?;
        }
        let (mut writes, mut refused) = (HashMap::<&str, usize>::new(), 0);
        for request in &requests {
            let is_resource = request.target.starts_with("knativeservings.operator.knative.dev/");
            refused += usize::from(request.code == 429);
            if is_resource && request.writes() && !request.target.ends_with("/status") && request.code == 200 {
                *writes.entry(&request.target).or_default() += 1;
            }
        }
        // The update, and the record of its outcome.
        let more = writes.values().filter(|count| **count > 2).count();
        let skipped = self.layout.clusters.saturating_sub(writes.len());
        note(&format!(
            "not written: {skipped}; written more than twice: {more}; refused requests: {refused}; requests since: {}",
            by_verb(&requests[first..])
        ));
        tokio::time::sleep(SETTLE).await;
        Ok(())
    }

    /// A rollout that fails on some clusters, and does not reach others; then a restart.
    async fn unreachable(&mut self) -> Result<()> {
        let (client, layout) = (self.hub.client(), self.layout);
        let unreachable = layout.unreachable();
        let hole = self.sim.black_hole("sim");
        each(&unreachable, |n| status(client.clone(), n, hole.clone())).await?;
        tokio::time::sleep(SETTLE * 2).await;
        let left: Vec<usize> = (0..layout.fleets).map(|fleet| layout.left(fleet)).collect();
        let begun = self.begin(&Change { fails: true, ..Change::key("2") }).await?;
        let done = |fleet: usize, status: &KnativeFleetStatus| {
            let left = left.get(fleet).and_then(|left| i32::try_from(*left).ok()).unwrap_or_default();
            status.updated + left.min(status.deferred + status.failed)
        };
        self.rolled_out(&begun, done, |fleet| layout.size(fleet)).await?;
        let failing = left.iter().sum::<usize>() - unreachable.len();
        let title = format!("another key; {} unreachable, {failing} failing", unreachable.len());
        self.report(&title, &begun, None, Vec::new()).await?;
        let (mut updated, mut deferred, mut failed) = (0, 0, 0);
        for fleet in 0..layout.fleets {
            let status = self.fleets().get(&name(fleet)).await?.status.unwrap_or_default();
            updated += status.updated;
            deferred += status.deferred;
            failed += status.failed;
        }
        note(&format!("{updated} updated, {deferred} deferred, {failed} failed"));

        let begun = self.mark()?;
        self.product.restart_operator(&self.hub, Signal::TERM).await?;
        self.resolved(layout.clusters - unreachable.len()).await?;
        self.report("restart, until all others are watched", &begun, None, Vec::new()).await.map(drop)
    }

    /// Begins a phase.
    fn mark(&mut self) -> Result<Begun> {
        let pid = self.product.operator.process.pid()?;
        measure::forget_peak(pid)?;
        self.audit.take()?;
        Ok(Begun { started: Instant::now(), cpu: (pid, measure::cpu(pid)?), generations: Vec::new() })
    }

    /// Begins a rollout of `change`.
    async fn begin(&mut self, change: &Change) -> Result<Begun> {
        let mut begun = self.mark()?;
        for fleet in 0..self.layout.fleets {
            let patch = Patch::Apply(self.layout.fleet(fleet, self.releases.serving, change));
            let stored = Box::pin(self.fleets().patch(&name(fleet), &PatchParams::apply("bench"), &patch)).await?;
            begun.generations.push(stored.metadata.generation);
        }
        Ok(begun)
    }

    /// Waits until of each fleet, `done` has `count` clusters.
    async fn rolled_out(
        &self,
        begun: &Begun,
        done: impl Fn(usize, &KnativeFleetStatus) -> i32,
        count: impl Fn(usize) -> usize,
    ) -> Result<()> {
        for (fleet, generation) in begun.generations.iter().enumerate() {
            let count = i32::try_from(count(fleet))?;
            let is_done = |stored: Option<&KnativeFleet>| {
                let status = stored.and_then(|stored| stored.status.as_ref());
                status.is_some_and(|s| s.observed_generation >= *generation && done(fleet, s) >= count)
            };
            let waiting = Box::pin(wait::until(&self.fleets(), &name(fleet), LIMIT, "rolled out", is_done)).await;
            waiting.map_err(|error| clip(&error.to_string()))?;
        }
        Ok(())
    }

    /// Prints what was measured since `begun`, and returns the requests: `before`, and those since.
    async fn report(
        &mut self,
        title: &str,
        begun: &Begun,
        places: Option<usize>,
        before: Vec<Request>,
    ) -> Result<Vec<Request>> {
        let pid = self.product.operator.process.pid()?;
        // A process that was started since then has what it used itself.
        let used = if begun.cpu.0 == pid { begun.cpu.1 } else { Duration::ZERO };
        let (time, cpu) = (begun.started.elapsed(), measure::cpu(pid)?.saturating_sub(used));
        tokio::time::sleep(LOGGED).await;
        let mut requests = before;
        requests.extend(self.audit.take()?);
        let memory = measure::peak(pid)?.saturating_sub(self.base);
        let pace = places.map(|places| pace(&requests, places)).transpose()?.flatten();
        let cost = Cost { time, requests: requests.len(), cpu, memory };
        self.table.row(title, &cost, pace, &by_verb(&requests));
        Ok(requests)
    }

    fn fleets(&self) -> Api<KnativeFleet> {
        Api::namespaced(self.hub.client(), "fleet")
    }

    /// Waits until `count` clusters are resolved.
    async fn resolved(&self, count: usize) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        while Instant::now() < deadline {
            if let Ok((200, text)) = http::get(self.product.metrics(), "/metrics").await {
                let is_resolved =
                    |line: &&str| line.starts_with("knative_operator_target_cluster_resolved{") && line.ends_with(" 1");
                if text.lines().filter(is_resolved).count() >= count {
                    return Ok(());
                }
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Err(format!("{count} clusters are not resolved after {LIMIT:?}").into())
    }
}

fn updated(_: usize, status: &KnativeFleetStatus) -> i32 {
    status.updated
}

/// An environment variable.
fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// `requests` without renewals of leases.
fn without_leases(mut requests: Vec<Request>) -> Vec<Request> {
    requests.retain(|request| !request.target.starts_with("leases."));
    requests
}

fn clip(text: &str) -> String {
    text.chars().take(3000).collect()
}
