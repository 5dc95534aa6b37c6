//! Cost of a rollout of a KnativeFleet: simulated spokes, a real hub, and the real operator.
//! Prints, for a rollout of one ConfigMap key in 20 stages, and in one stage with `maxConcurrent:
//! 10%`: time, requests to the hub and CPU time per cluster, peak memory per cluster, the time from
//! the last status of a cluster to the write of the next one (median and 99th percentile), requests
//! at rest; the same with an operator that is killed, with a hub that refuses requests (429) and
//! with one that stalls, each in the middle; then with ten unreachable clusters and 1 % that fail;
//! then the time until a restarted operator watches all clusters. Asserts nothing.
//!
//! `make bench`. Environment: `BENCH_FLEET` is the number of spokes (1000), `BENCH_IDLE` the number
//! of idle seconds (10), `BENCH_STALL` that of seconds for which the hub's etcd stands still (60).

use std::collections::HashMap;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use knative_operator_shared::api::KnativeFleet;
use knative_operator_shared::api::fleet::KnativeFleetStatus;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::measure::{self, Audit, Request, by_verb};
use knative_operator_tests::product::{self, FLEET, HUB_USER, Product};
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::sim::Sim;
use knative_operator_tests::sim::hub::{TOKEN_PLUGIN, each, profile, status};
use knative_operator_tests::{Result, http, kubelet, wait};
use kube::Api;
use kube::api::{Patch, PatchParams};
use rustix::process::Signal;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(900);
/// Stages.
const STAGES: usize = 20;
/// Time for memory to settle.
const SETTLE: Duration = Duration::from_secs(15);
/// Unreachable clusters.
const BLACK_HOLED: usize = 10;

#[tokio::main]
async fn main() -> Result<()> {
    knative_operator_runtime::install_crypto();
    let (spokes, idle) = (number("BENCH_FLEET", 1000), Duration::from_secs(number("BENCH_IDLE", 10) as u64));
    let releases = releases::best();
    let (sim, hub) = (Sim::start(spokes).await?, Cluster::hub("hub").await?);
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
    println!("rollouts: {spokes} clusters, {STAGES} stages");
    println!(
        "{:<44} {:>8} {:>12} {:>12} {:>12} {:>16}  requests to the hub",
        "", "time", "requests", "CPU", "peak", "next p50/p99"
    );
    println!("{:<44} {:>8} {:>12} {:>12} {:>12} {:>16}", "", "", "a cluster", "a cluster", "a cluster", "");
    let mut bench = Bench { hub, sim, product, releases, audit, base, spokes };
    Box::pin(bench.run(idle)).await
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

/// A rollout that has begun.
struct Begun {
    started: Instant,
    /// The operator, and its CPU time until then.
    cpu: (i32, Duration),
    /// The fleet's.
    generation: Option<i64>,
}

struct Bench {
    hub: Cluster,
    sim: Sim,
    product: Product,
    releases: Releases,
    audit: Audit,
    base: u64,
    spokes: usize,
}

impl Bench {
    async fn run(&mut self, idle: Duration) -> Result<()> {
        let client = self.hub.client();
        let all: Vec<usize> = (0..self.spokes).collect();
        each(&all, |n| profile(client.clone(), n, labels(n, self.spokes), self.sim.access(n, "sim"))).await?;
        self.phase(("install", None), json!({}), |status| status.ready).await?;
        tokio::time::sleep(SETTLE).await;
        let key = |value: &str| json!({"config": {"features": {"bench": value}}});
        self.phase(("one ConfigMap key", None), key("1"), |status| status.updated).await?;
        tokio::time::sleep(SETTLE).await;
        let tenth = self.spokes.div_ceil(10);
        self.phase(("one key, one stage, maxConcurrent: 10%", Some(tenth)), key("one"), |status| status.updated)
            .await?;
        tokio::time::sleep(SETTLE).await;
        self.audit.take()?;
        tokio::time::sleep(idle).await;
        println!("{:<44} {}", format!("at rest, {} s", idle.as_secs()), by_verb(&without_leases(self.audit.take()?)));

        for (turn, fault) in [Fault::Killed, Fault::Refused, Fault::Stalled].into_iter().enumerate() {
            self.disturbed(fault, key(&format!("fault-{turn}"))).await?;
            tokio::time::sleep(SETTLE).await;
        }

        let dead: Vec<usize> =
            (0..BLACK_HOLED.min(self.spokes / 10)).map(|n| n * (self.spokes / BLACK_HOLED) + 1).collect();
        let hole = self.sim.black_hole("sim");
        each(&dead, |n| status(client.clone(), n, hole.clone())).await?;
        tokio::time::sleep(SETTLE * 2).await;
        let failing = i32::try_from(self.spokes / 100 + dead.len())?;
        let title = format!("another key; {} unreachable, {} failing", dead.len(), self.spokes / 100);
        let spec = json!({"config": {"features": {"bench": "2"}}});
        self.phase((&title, None), spec, move |status| status.updated + failing.min(status.deferred + status.failed))
            .await?;
        let status = self.fleet().await?;
        println!("{:<44} {} updated, {} deferred, {} failed", "", status.updated, status.deferred, status.failed);

        let started = Instant::now();
        self.product.restart_operator(&self.hub, Signal::TERM).await?;
        self.resolved(self.spokes - dead.len()).await?;
        println!("{:<44} {:>7.1}s", "restart, until all others are watched", started.elapsed().as_secs_f64());
        Ok(())
    }

    async fn fleet(&self) -> Result<KnativeFleetStatus> {
        Ok(self.fleets().get("bench").await?.status.unwrap_or_default())
    }

    /// Applies the fleet with `spec` in its template, and waits until `done` has all clusters. With
    /// a number of clusters at a time, measures the time to the next one.
    async fn phase(
        &mut self,
        (title, at_a_time): (&str, Option<usize>),
        spec: Value,
        done: impl Fn(&KnativeFleetStatus) -> i32,
    ) -> Result<()> {
        let begun = self.begin(&spec).await?;
        self.rolled_out(&begun, done, self.spokes).await?;
        self.report(title, &begun, at_a_time).await.map(drop)
    }

    /// Applies the fleet with `spec` in its template.
    async fn begin(&mut self, spec: &Value) -> Result<Begun> {
        let pid = self.product.operator.process.pid()?;
        measure::forget_peak(pid)?;
        self.audit.take()?;
        let (started, cpu) = (Instant::now(), (pid, measure::cpu(pid)?));
        let (params, patch) = (PatchParams::apply("bench"), Patch::Apply(self.resource(spec)));
        let stored = Box::pin(self.fleets().patch("bench", &params, &patch)).await?;
        Ok(Begun { started, cpu, generation: stored.metadata.generation })
    }

    /// Waits until `done` has `count` clusters.
    async fn rolled_out(&self, begun: &Begun, done: impl Fn(&KnativeFleetStatus) -> i32, count: usize) -> Result<()> {
        let count = i32::try_from(count)?;
        let is_done = |fleet: Option<&KnativeFleet>| {
            let status = fleet.and_then(|fleet| fleet.status.as_ref());
            status.is_some_and(|s| s.observed_generation >= begun.generation && done(s) >= count)
        };
        let rolled_out = Box::pin(wait::until(&self.fleets(), "bench", LIMIT, "rolled out", is_done)).await;
        rolled_out.map(drop).map_err(|error| clip(&error.to_string()).into())
    }

    /// Prints what was measured since `begun`, and returns the requests.
    async fn report(&mut self, title: &str, begun: &Begun, at_a_time: Option<usize>) -> Result<Vec<Request>> {
        let pid = self.product.operator.process.pid()?;
        // A process that was started since then has what it used itself.
        let before = if begun.cpu.0 == pid { begun.cpu.1 } else { Duration::ZERO };
        let (time, cpu) = (begun.started.elapsed(), measure::cpu(pid)?.saturating_sub(before));
        tokio::time::sleep(Duration::from_secs(2)).await;
        let requests: Vec<Request> = self.audit.take()?;
        let peak = measure::peak(pid)?.saturating_sub(self.base);
        let next = match at_a_time {
            None => "-".to_owned(),
            Some(at_a_time) => {
                let (p50, p99) = next(&requests, at_a_time)?;
                format!("{p50}/{p99} ms")
            }
        };
        println!(
            "{title:<44} {:>7.1}s {:>12.2} {:>9.1} ms {:>8.0} KiB {:>16}  {}",
            time.as_secs_f64(),
            ratio(requests.len(), self.spokes),
            cpu.as_secs_f64() * 1000.0 / ratio(self.spokes, 1),
            ratio(usize::try_from(peak)?, self.spokes),
            next,
            by_verb(&requests)
        );
        Ok(requests)
    }

    /// A rollout with a fault once half of the clusters are updated.
    async fn disturbed(&mut self, fault: Fault, spec: Value) -> Result<()> {
        let begun = self.begin(&spec).await?;
        self.rolled_out(&begun, |status| status.updated, self.spokes / 2).await?;
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
        self.rolled_out(&begun, |status| status.updated, self.spokes).await?;
        let requests = self.report(&title, &begun, None).await?;
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
        println!("{:<44} {} clusters written, {more} of them more than twice; {refused} refused", "", writes.len());
        Ok(())
    }

    fn fleets(&self) -> Api<KnativeFleet> {
        Api::namespaced(self.hub.client(), "fleet")
    }

    fn resource(&self, spec: &Value) -> Value {
        let mut serving = json!({"version": self.releases.serving, "ingress": {"kourier": {"enabled": true}}});
        if let Some(config) = spec.get("config") {
            serving["config"] = config.clone();
        }
        let stage = |number: usize| {
            json!({"name": format!("stage-{number}"), "clusterSelector": {"matchLabels": {"stage": number.to_string()}},
                "maxConcurrent": "100%", "maxFailures": "50%", "progressDeadlineSeconds": 8})
        };
        let stages = if serving["config"]["features"]["bench"] == "one" {
            json!([{"name": "all", "maxConcurrent": "10%"}])
        } else {
            (0..STAGES).map(stage).collect()
        };
        let broken = json!({"spec": {"additionalManifests": [{"URL": "none/there.yaml"}]}});
        // The failing clusters fail with the last change only.
        let fails = serving["config"]["features"]["bench"] == "2";
        let overrides = json!([{"clusterSelector": {"matchLabels": {"fails": "yes"}}, "serving": broken}]);
        json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": "bench", "namespace": "fleet"}, "spec": {
            "placement": {"clusterSelector": {}, "namespaces": [FLEET]},
            "serving": {"spec": serving},
            "overrides": if fails { overrides } else { json!([]) },
            "rollout": {"stages": stages},
        }})
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

/// An environment variable.
fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// A priority level of the API server that serves few requests of the operator at a time, and
/// refuses the others.
fn refusal() -> Value {
    let api = "flowcontrol.apiserver.k8s.io/v1";
    let limited = json!({"nominalConcurrencyShares": 1, "lendablePercent": 0, "borrowingLimitPercent": 0,
        "limitResponse": {"type": "Reject"}});
    let all =
        json!([{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "namespaces": ["*"], "clusterScope": true}]);
    let (namespace, name) = HUB_USER.trim_start_matches("system:serviceaccount:").split_once(':').unwrap_or_default();
    let who = json!([{"kind": "ServiceAccount", "serviceAccount": {"namespace": namespace, "name": name}}]);
    json!({"apiVersion": "v1", "kind": "List", "items": [
        {"apiVersion": api, "kind": "PriorityLevelConfiguration", "metadata": {"name": "bench"},
            "spec": {"type": "Limited", "limited": limited}},
        {"apiVersion": api, "kind": "FlowSchema", "metadata": {"name": "bench"}, "spec": {
            "priorityLevelConfiguration": {"name": "bench"}, "matchingPrecedence": 10,
            "rules": [{"subjects": who, "resourceRules": all}]}},
    ]})
}

/// Labels of spoke `number` of `spokes`.
fn labels(number: usize, spokes: usize) -> Value {
    // One of a hundred fails.
    let fails = if number % 100 == 50 { "yes" } else { "no" };
    json!({"stage": (number / spokes.div_ceil(STAGES)).to_string(), "fails": fails})
}

/// Median and 99th percentile in milliseconds of the time from the last status of a cluster to the
/// write of the next one, `at_a_time` writes later.
fn next(requests: &[Request], at_a_time: usize) -> Result<(i128, i128)> {
    let (mut written, mut ready): (HashMap<&str, Timestamp>, HashMap<&str, Timestamp>) = Default::default();
    for request in requests.iter().filter(|request| request.verb == "patch") {
        let Some(target) = request.target.strip_prefix("knativeservings.operator.knative.dev/") else { continue };
        match target.strip_suffix("/status") {
            Some(name) => drop(ready.insert(name, request.times.1.parse()?)),
            None => drop(written.entry(target).or_insert(request.times.0.parse()?)),
        }
    }
    let sorted = |times: HashMap<&str, Timestamp>| {
        let mut times: Vec<_> = times.into_values().collect();
        times.sort();
        times
    };
    let (written, ready) = (sorted(written), sorted(ready));
    let pairs = ready.iter().zip(written.iter().skip(at_a_time));
    let mut delays: Vec<i128> = pairs.map(|(ready, next)| next.duration_since(*ready).as_millis().max(0)).collect();
    delays.sort_unstable();
    let at = |percent: usize| delays.get(delays.len() * percent / 100).copied().unwrap_or_default();
    Ok((at(50), at(99)))
}

/// `requests` without renewals of leases.
fn without_leases(mut requests: Vec<Request>) -> Vec<Request> {
    requests.retain(|request| !request.target.starts_with("leases."));
    requests
}

fn clip(text: &str) -> String {
    text.chars().take(3000).collect()
}

#[allow(clippy::cast_precision_loss)] // for people
fn ratio(count: usize, of: usize) -> f64 {
    count as f64 / of as f64
}
