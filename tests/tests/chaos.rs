//! Random changes of resources under random faults of all API servers: afterwards, each cluster has
//! what its resource declares, as without faults.
//!
//! `CHAOS_SEED` is the first seed. Seeds follow each other for `CHAOS_MINUTES`, or at least one.
//! `CHAOS_SECONDS` is the time with faults of each. A failure prints the faults and changes of its
//! seed.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures)] // these are tests

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use futures::future::{join_all, try_join_all};
use knative_operator_shared::api::Component;
use knative_operator_tests::chaos::{Chaos, Schedule};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::gate::Gate;
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::{Result, applied, http, measure, releases};
use serde_json::{Value, json};
use tokio::sync::Mutex;

/// Time limit from the end of the faults until all is as declared.
const CONVERGENCE: Duration = Duration::from_secs(60);
/// Interval of reads.
const INTERVAL: Duration = Duration::from_millis(250);
/// Time at rest, in which no request is sent to a spoke.
const REST: Duration = Duration::from_secs(10);

/// Maximum growth of the number of file descriptors.
const FILES: usize = 16;

/// What a resource declares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Config {
    component: Component,
    version: &'static str,
    kourier: bool,
    value: u8,
}

impl Config {
    fn random(component: Component, random: &mut Rng) -> Self {
        let is_serving = component == Component::Serving;
        let version = if is_serving && random.bool() { "1.0.0" } else { "1.1.0" };
        Self { component, version, kourier: is_serving && random.bool(), value: random.u8(..3) }
    }

    fn resource(self, namespace: &str, profile: &str) -> Value {
        let mut spec = json!({"version": self.version, "clusterProfileRef": {"name": profile, "namespace": FLEET}});
        if self.component == Component::Serving {
            spec["ingress"] =
                if self.kourier { json!({"kourier": {"enabled": true}}) } else { json!({"istio": {"enabled": false}}) };
            spec["config"] = json!({"network": {"ingress-class": "somebody.example/ingress"},
                "defaults": {"revision-timeout-seconds": format!("30{}", self.value)}});
        } else {
            spec["config"] = json!({"br-defaults": {"default-br-config": format!("value: {}", self.value)}});
        }
        json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": self.component.kind(),
            "metadata": {"name": "one", "namespace": namespace}, "spec": spec})
    }
}

type State = BTreeMap<String, Value>;

/// A spoke, and the resource that is installed on it.
struct Site {
    name: String,
    spoke: Cluster,
    component: Component,
    chaos: Arc<Chaos>,
    _gate: Gate,
    declared: Mutex<Option<Config>>,
}

struct World {
    hub: Cluster,
    product: Product,
    chaos: Arc<Chaos>,
    _gate: Gate,
    sites: Vec<Site>,
    /// A spoke without faults for each component, and what it had for each configuration.
    calm: [Cluster; 2],
    expected: Mutex<HashMap<Config, State>>,
}

impl World {
    async fn start() -> Result<Self> {
        let components = [Component::Serving, Component::Eventing, Component::Serving];
        let names: Vec<String> = (0..components.len()).map(|number| format!("chaos-{number}")).collect();
        let (mut hub, spokes, calm_serving, calm_eventing) = tokio::try_join!(
            Cluster::hub("chaos"),
            try_join_all(names.iter().map(|name| Cluster::spoke(name))),
            Cluster::spoke("calm-serving"),
            Cluster::spoke("calm-eventing"),
        )?;
        let chaos = Arc::new(Chaos::default());
        let gate = Gate::open(&hub, &chaos).await?;
        hub.set_pod_endpoint(gate.url.clone(), gate.authority.clone());
        let plugins = tempfile::tempdir()?;
        let product = Product::install(&hub, &releases::small(), product::values(&[]), plugins.path()).await?;
        let mut sites = Vec::new();
        for ((name, mut spoke), component) in names.into_iter().zip(spokes).zip(components) {
            let chaos = Arc::new(Chaos::default());
            let gate = Gate::open(&spoke, &chaos).await?;
            spoke.set_pod_endpoint(gate.url.clone(), gate.authority.clone());
            product::register(&hub, &spoke, &name).await?;
            hub.kubectl(&["create", "namespace", &name], "").await?;
            // The operator keeps a namespace that it did not create, whose deletion takes seconds.
            spoke.kubectl(&["create", "namespace", component.canonical()], "").await?;
            sites.push(Site { name, spoke, component, chaos, _gate: gate, declared: Mutex::default() });
        }
        let calm = [calm_serving, calm_eventing];
        for spoke in &calm {
            product::register(&hub, spoke, spoke.name()).await?;
            for component in Component::ALL {
                spoke.kubectl(&["create", "namespace", component.canonical()], "").await?;
            }
            hub.kubectl(&["create", "namespace", spoke.name()], "").await?;
        }
        Ok(Self { hub, product, chaos, _gate: gate, sites, calm, expected: Mutex::default() })
    }

    async fn apply(&self, resource: &Value) -> Result<()> {
        self.hub.kubectl(&["apply", "-f", "-"], &resource.to_string()).await.map(drop)
    }

    /// Whether `config` is installed, as the status of its resource in `namespace` says.
    async fn is_installed(&self, config: Config, namespace: &str) -> Result<bool> {
        let kind = config.component.plural();
        let text = self.hub.kubectl(&["get", kind, "one", "-n", namespace, "-o", "json"], "").await?;
        let resource: Value = serde_json::from_str(&text)?;
        let status = &resource["status"];
        let conditions = status["conditions"].as_array().into_iter().flatten();
        Ok(status["version"] == config.version
            && status["observedGeneration"] == resource["metadata"]["generation"]
            && conditions.into_iter().any(|c| c["type"] == "Ready" && c["status"] == "True"))
    }

    /// What an undisturbed cluster has for `config`.
    async fn expected(&self, config: Config) -> Result<State> {
        let mut known = self.expected.lock().await;
        if let Some(state) = known.get(&config) {
            return Ok(state.clone());
        }
        let calm = &self.calm[usize::from(config.component == Component::Eventing)];
        self.apply(&config.resource(calm.name(), calm.name())).await?;
        let deadline = Instant::now() + CONVERGENCE;
        while !self.is_installed(config, calm.name()).await? {
            assert!(Instant::now() < deadline, "{config:?} is not installed on {}", calm.name());
            tokio::time::sleep(INTERVAL).await;
        }
        // Until the Jobs that remove earlier objects are complete.
        let mut state = objects(calm).await?;
        loop {
            tokio::time::sleep(INTERVAL * 4).await;
            let next = objects(calm).await?;
            if next == state {
                break;
            }
            state = next;
        }
        known.insert(config, state.clone());
        Ok(state)
    }

    /// Changes the resource of `site` in random steps within `length`.
    async fn change(&self, site: &Site, random: &mut Rng, length: Duration, steps: &Mutex<String>) -> Result<()> {
        let count = random.u32(1..=4);
        for _ in 0..count {
            let is_deletion = site.declared.lock().await.is_some() && random.u8(..5) == 0;
            let next = (!is_deletion).then(|| Config::random(site.component, random));
            let _ = writeln!(steps.lock().await, "    {}: {next:?}", site.name);
            if let Some(config) = next {
                self.apply(&config.resource(&site.name, &site.name)).await?;
            } else {
                let kind = site.component.plural();
                self.hub.kubectl(&["delete", kind, "one", "-n", &site.name, "--timeout=90s"], "").await?;
            }
            *site.declared.lock().await = next;
            tokio::time::sleep(length.mul_f64(random.f64() / f64::from(count))).await;
        }
        Ok(())
    }

    /// Deletes the resource of `site`, after which nothing is left.
    async fn delete(&self, site: &Site) -> Result<()> {
        if site.declared.lock().await.take().is_some() {
            let kind = site.component.plural();
            self.hub.kubectl(&["delete", kind, "one", "-n", &site.name, "--timeout=60s"], "").await?;
        }
        self.converge(site).await.map(drop)
    }

    /// Waits until `site` has what it declares; returns the time.
    async fn converge(&self, site: &Site) -> Result<Duration> {
        let (started, declared) = (Instant::now(), *site.declared.lock().await);
        let expected = match declared {
            Some(config) => self.expected(config).await?,
            None => State::new(),
        };
        let started = if expected.is_empty() { started } else { Instant::now() };
        loop {
            let is_installed = match declared {
                Some(config) => self.is_installed(config, &site.name).await?,
                None => true,
            };
            let mut found = objects(&site.spoke).await?;
            // Definitions of earlier versions stay, with the users' objects.
            found.retain(|name, _| !name.starts_with("CustomResourceDefinition ") || expected.contains_key(name));
            if is_installed && found == expected {
                return Ok(started.elapsed());
            }
            if started.elapsed() > CONVERGENCE {
                let arguments = ["get", site.component.plural(), "-n", &site.name, "-o", "yaml"];
                let status = self.hub.kubectl(&arguments, "").await?;
                let differences = differences(&expected, &found);
                return Err(format!("{}: not as declared: {differences}\n{status}", site.name).into());
            }
            tokio::time::sleep(INTERVAL).await;
        }
    }

    /// One seed: changes under faults, until all is as declared.
    async fn seed(&self, seed: u64, length: Duration) -> Result<Duration> {
        let schedule = |number: u64, windows: usize| Arc::new(Schedule::new(seed * 16 + number, windows, length));
        let hub = schedule(15, 2);
        self.chaos.start(&hub);
        let (mut faults, steps) = (format!("  hub:\n{hub}"), Mutex::new(String::new()));
        for (number, site) in (0..).zip(&self.sites) {
            let schedule = schedule(number, 4);
            site.chaos.start(&schedule);
            let _ = write!(faults, "  {}:\n{schedule}", site.name);
        }
        let changes = (0..).zip(&self.sites).map(|(number, site)| {
            let steps = &steps;
            async move { self.change(site, &mut Rng::with_seed(seed * 16 + 8 + number), length, steps).await }
        });
        let (changes, ()) = tokio::join!(join_all(changes), async {
            tokio::time::sleep(length).await;
            self.chaos.stop();
            self.sites.iter().for_each(|site| site.chaos.stop());
        });
        let failed = |error: Error, steps: &str| -> Error {
            let log = self.product.operator.process.log();
            // The lines about the site that failed.
            let name = error.to_string().split(':').next().unwrap_or_default().to_owned();
            let last: Vec<&str> = log.lines().rev().filter(|line| line.contains(&name)).take(60).collect();
            let last: Vec<&str> = last.into_iter().rev().collect();
            format!(
                "seed {seed}: {error}\nfaults:\n{faults}  changes:\n{steps}\nlog of the operator:\n{}",
                last.join("\n")
            )
            .into()
        };
        for change in changes {
            change.map_err(|error| failed(error, "see above"))?;
        }
        let steps = steps.into_inner();
        let times = join_all(self.sites.iter().map(|site| self.converge(site))).await;
        let mut slowest = Duration::ZERO;
        for time in times {
            slowest = slowest.max(time.map_err(|error| failed(error, &steps))?);
        }
        let ends = join_all(self.sites.iter().map(|site| self.delete(site))).await;
        ends.into_iter().collect::<Result<Vec<()>>>().map_err(|error| failed(error, &steps))?;
        Ok(slowest)
    }
}

/// The applied objects, without their history.
async fn objects(spoke: &Cluster) -> Result<State> {
    let mut objects = applied::objects(spoke).await?;
    objects.retain(|name, _| !name.starts_with("ReplicaSet ") && !name.starts_with("ControllerRevision "));
    for object in objects.values_mut() {
        object["annotations"].as_object_mut().map(|all| all.remove("deployment.kubernetes.io/revision"));
    }
    Ok(objects)
}

type Error = knative_operator_tests::Error;

fn differences(expected: &State, found: &State) -> String {
    let missing = expected.keys().filter(|name| !found.contains_key(*name)).map(|name| format!("missing {name}"));
    let further = found.keys().filter(|name| !expected.contains_key(*name)).map(|name| format!("left over {name}"));
    let changed = expected.iter().filter_map(|(name, object)| {
        let found = found.get(name).filter(|found| *found != object)?;
        Some(format!("changed {name}: {object} to {found}"))
    });
    missing.chain(further).chain(changed).collect::<Vec<_>>().join("; ")
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

#[test]
fn clusters_are_as_declared_after_faults() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    if let Err(error) = runtime.block_on(run()) {
        panic!("{error}");
    }
}

async fn run() -> Result<()> {
    let (first, limit) = (setting("CHAOS_SEED", 1), Duration::from_secs(60 * setting("CHAOS_MINUTES", 1)));
    let length = Duration::from_secs(setting("CHAOS_SECONDS", 2));
    let world = World::start().await?;
    let pid = world.product.operator.process.pid()?;
    let files = || std::fs::read_dir(format!("/proc/{pid}/fd")).map(Iterator::count);
    let before_all = files()?;
    let (begin, mut slowest, mut seed) = (Instant::now(), Duration::ZERO, first);
    while seed == first || begin.elapsed() < limit {
        let started = Instant::now();
        let time = world.seed(seed, length).await?;
        slowest = slowest.max(time);
        let (requests, faults) =
            world.sites.iter().map(|site| site.chaos.counts()).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        println!(
            "seed {seed}: as declared after {:.1} s, all in {:.1} s; {requests} requests, {faults} faults so far; {} MB",
            time.as_secs_f64(),
            started.elapsed().as_secs_f64(),
            measure::resident(pid)? / 1000
        );
        seed += 1;
    }
    let before: Vec<usize> = world.sites.iter().map(|site| site.chaos.counts().0).collect();
    tokio::time::sleep(REST).await;
    let after: Vec<usize> = world.sites.iter().map(|site| site.chaos.counts().0).collect();
    assert_eq!(before, after, "requests at rest");
    let grown = files()?.saturating_sub(before_all);
    assert!(grown <= FILES, "the operator has {grown} more open files");
    let (_, metrics) = http::get(world.product.metrics(), "/metrics").await?;
    let panics: Vec<&str> =
        metrics.lines().filter(|line| line.contains("reconcile_panics_total{") && !line.ends_with(" 0")).collect();
    assert!(panics.is_empty(), "reconciles panicked: {panics:?}");
    assert_eq!(world.product.operator.process.pid()?, pid, "the operator ended");
    println!("{} seeds: slowest {:.1} s", seed - first, slowest.as_secs_f64());
    Ok(())
}
