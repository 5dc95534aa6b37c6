//! Cost of an installation, and of keeping it: time, requests to the spoke by verb, CPU time, peak
//! memory; compared with a minimal parallel server-side apply of the same objects in the same run,
//! until what a Ready resource promises holds: all definitions are established, and all Deployments
//! are available. Asserts nothing.
//!
//! `make bench`. Environment: `BENCH_OPERATOR` names another binary or script, which is started
//! with the arguments, environment and ServiceAccount of the operator's Deployment; `BENCH_IDLE` is
//! the number of idle seconds (10); with `BENCH_REQUESTS`, each request is printed.

#![allow(clippy::large_futures)] // a bench runs once

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_objects::owner::Owner;
use knative_operator_objects::plan::{Item, Phase, Plan};
use knative_operator_release::{Bundle, Downloads, HostPolicy, Library};
use knative_operator_render::Settings;
use knative_operator_rules as rules;
use knative_operator_shared::api::{Component, KnativeEventing, KnativeServing, KnativeStatus};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::measure::{self, Audit, Request, by_verb};
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::releases::{self, Releases};
use knative_operator_tests::{Result, wait};
use kube::api::{ListParams, Patch, PatchParams};
use kube::core::DynamicObject;
use kube::{Api, Client};
use rustix::process::Signal;
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(180);
/// Time after each phase in which further requests count.
const SETTLE: Duration = Duration::from_secs(3);

#[tokio::main]
async fn main() -> Result<()> {
    knative_operator_runtime::install_crypto();
    let releases = releases::best();
    let (hub, spoke, floor) = tokio::try_join!(Cluster::hub("hub"), Cluster::spoke("spoke"), Cluster::spoke("floor"))?;
    let plugins = hub.dir().join("own-plugins");
    std::fs::create_dir_all(&plugins)?;
    let mut values = product::values(&[]);
    values["knative_operator"]["knative_operator"]["logLevel"] = json!("info");
    let product = Product::install(&hub, &releases, values, &plugins).await?;
    product::register(&hub, &spoke, "spoke").await?;
    hub.kubectl(&["create", "namespace", "bench"], "").await?;
    let audits = (Audit::of(&spoke, product::SPOKE_USER)?, Audit::of(&hub, product::HUB_USER)?);
    let progress = (Audit::of(&spoke, "system:apiserver")?, Audit::of(&spoke, "admin")?);
    let mut bench = Bench { releases, hub, spoke, product, audits, progress, installed: 0 };
    println!("releases: {}\n", bench.releases.dir.display());
    println!(
        "{:<34} {:>7} {:>8} {:>9}  requests to the spoke (to the hub; of these, writes of the status)",
        "", "time", "CPU", "peak"
    );
    for component in Component::ALL {
        bench.component(component, &floor).await?;
    }
    Ok(())
}

struct Bench {
    releases: Releases,
    hub: Cluster,
    spoke: Cluster,
    product: Product,
    audits: (Audit, Audit),
    /// The API server of the spoke, which establishes definitions, and its controllers.
    progress: (Audit, Audit),
    installed: usize,
}

impl Bench {
    fn resource(&self, component: Component) -> Value {
        let mut spec = match component {
            Component::Serving => json!({"version": self.releases.serving, "ingress": {"kourier": {"enabled": true}}}),
            Component::Eventing => json!({"version": self.releases.eventing}),
        };
        spec["clusterProfileRef"] = json!({"name": "spoke", "namespace": FLEET});
        json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": component.kind(), "metadata": {"namespace": "bench", "name": "bench"}, "spec": spec})
    }

    async fn component(&mut self, component: Component, floor: &Cluster) -> Result<()> {
        let mut resource = self.resource(component);
        let plan = self.plan(component, &resource).await?;
        self.installed = plan.items().len();
        println!("{component}: {} objects", self.installed);
        let floor = minimal_apply(&floor.client(), &plan, component.canonical()).await?;
        println!("  {:<32} {:>6.2}s", "floor: bare parallel apply", floor.time().as_secs_f64());
        let Floor { written, established, available } = floor;
        print_progress(&[("written", written), ("established", established), ("available", available)]);

        drop((self.progress.0.take()?, self.progress.1.take()?));
        let started = Timestamp::now();
        let first = self.phase("first install", async |b| b.apply(&resource, component).await).await?;
        println!(
            "  {:<32} {:>6.2} times the floor, {:.2} requests an object",
            "",
            first.0.as_secs_f64() / floor.time().as_secs_f64(),
            ratio(first.1.len(), self.installed)
        );
        let (requests, served, run) = (&first.1, self.progress.0.take()?, self.progress.1.take()?);
        let to =
            |resource: &'static str| move |request: &Request| request.writes() && request.target.starts_with(resource);
        let (definitions, deployments) = (to("customresourcedefinitions."), to("deployments."));
        print_progress(&[
            ("connected", since(started, answered(requests, |_| true).min())),
            ("began", since(started, answered(requests, definitions).min())),
            ("written", since(started, answered(requests, |request| request.code == 201).max())),
            ("established", since(started, answered(&served, definitions).max())),
            ("available", since(started, answered(&run, deployments).max())),
        ]);
        self.phase("forced reconcile", async |b| {
            let trigger = format!("reconcile.knative.dev/trigger={}", std::process::id());
            b.hub
                .kubectl(&["annotate", "--overwrite", component.kind(), "-n", "bench", "bench", &trigger], "")
                .await
                .map(drop)
        })
        .await?;
        let idle = std::env::var("BENCH_IDLE").ok().and_then(|s| s.parse().ok()).unwrap_or(10);
        self.phase("idle", async |_| {
            tokio::time::sleep(Duration::from_secs(idle)).await;
            Ok(())
        })
        .await?;
        resource["spec"]["config"] = json!({"features": {"bench": "1"}});
        self.phase("one ConfigMap key", async |b| {
            store(&b.hub.client(), component, &resource).await?;
            let maps = Api::<ConfigMap>::namespaced(b.spoke.client(), component.canonical());
            let there = |m: Option<&ConfigMap>| {
                m.and_then(|m| m.data.as_ref()).is_some_and(|d| d.get("bench").is_some_and(|v| v == "1"))
            };
            let name =
                if b.releases.real || component == Component::Eventing { "config-features" } else { "config-defaults" };
            wait::until(&maps, name, LIMIT, "changed", there).await.map(drop)
        })
        .await?;
        self.phase("restart", async |b| b.product.restart_operator(&b.hub, Signal::TERM).await).await?;
        let next = self.next(component)?;
        if let Some(next) = next {
            resource["spec"]["version"] = json!(next);
            self.phase(&format!("upgrade to {next}"), async |b| b.apply(&resource, component).await).await?;
        }
        println!();
        Ok(())
    }

    /// The version after the installed one.
    fn next(&self, component: Component) -> Result<Option<String>> {
        let installed =
            if component == Component::Serving { self.releases.serving } else { self.releases.eventing }.parse()?;
        let versions = Bundle::open(self.releases.dir.clone()).versions(component)?;
        Ok(versions.into_iter().filter(|v| *v > installed).min().map(|v| v.to_string()))
    }

    async fn plan(&self, component: Component, resource: &Value) -> Result<Plan> {
        let read = rules::parse(component, resource).map_err(|p| p.to_string())?;
        let version = read.common().version.as_deref().unwrap_or_default().parse()?;
        let library = Library {
            bundle: Bundle::open(self.releases.dir.clone()),
            downloads: Downloads::new(LIMIT, HostPolicy::any())?,
            archive: None,
            keeps_installed: false,
        };
        let release = library.release(&read, &version).await?;
        let objects = knative_operator_render::objects(&read, &version, release.objects(), &Settings::default())?;
        Ok(Plan::new(Arc::new(objects), &Owner::of(&read, "")))
    }

    async fn apply(&self, resource: &Value, component: Component) -> Result<()> {
        store(&self.hub.client(), component, resource).await?;
        let version = resource["spec"]["version"].as_str();
        let ready = |status: Option<&KnativeStatus>| {
            status.is_some_and(|s| {
                s.version.as_deref() == version && s.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True")
            })
        };
        match component {
            Component::Serving => {
                let api = Api::<KnativeServing>::namespaced(self.hub.client(), "bench");
                wait::until(&api, "bench", LIMIT, "ready", |s| ready(s.and_then(|s| s.status.as_ref()))).await.map(drop)
            }
            Component::Eventing => {
                let api = Api::<KnativeEventing>::namespaced(self.hub.client(), "bench");
                wait::until(&api, "bench", LIMIT, "ready", |s| ready(s.and_then(|s| s.status.as_ref()))).await.map(drop)
            }
        }
    }

    /// Runs `work`, waits, and prints its total cost; returns its duration and the requests to the
    /// spoke.
    async fn phase(
        &mut self,
        name: &str,
        work: impl AsyncFnOnce(&mut Self) -> Result<()>,
    ) -> Result<(Duration, Vec<Request>)> {
        let pid = self.product.operator.process.pid()?;
        let _ = (self.audits.0.take()?, self.audits.1.take()?);
        measure::forget_peak(pid)?;
        let (cpu, started) = (measure::cpu(pid)?, Instant::now());
        work(self).await?;
        let time = started.elapsed();
        tokio::time::sleep(SETTLE).await;
        let now = self.product.operator.process.pid()?;
        let cpu = measure::cpu(now)?.saturating_sub(if now == pid { cpu } else { Duration::ZERO });
        let (spoke, hub) = (self.audits.0.take()?, self.audits.1.take()?);
        println!(
            "  {name:<32} {:>6.2}s {:>7.2}s {:>6.1}MB  {} ({}; status: {})",
            time.as_secs_f64(),
            cpu.as_secs_f64(),
            ratio(usize::try_from(measure::peak(now)?)?, 1024),
            by_verb(&spoke),
            by_verb(&hub),
            hub.iter().filter(|r| r.writes() && r.target.ends_with("/status")).count(),
        );
        if std::env::var_os("BENCH_REQUESTS").is_some() {
            println!(
                "{}",
                self.product
                    .operator
                    .process
                    .log()
                    .lines()
                    .filter(|l| l.contains("event"))
                    .collect::<Vec<_>>()
                    .join("\n")
            );
            spoke
                .iter()
                .chain(&hub)
                .for_each(|r| println!("      {} {} {} {} {}", r.verb, r.target, r.code, r.times.0, r.times.1));
        }
        Ok((time, spoke))
    }
}

/// Applies `resource` on the hub, without the overhead of kubectl (0.2 to 0.7 s, mostly for the API
/// server's OpenAPI), which the minimal apply does not have either.
async fn store(hub: &Client, component: Component, resource: &Value) -> Result<()> {
    let params = PatchParams::apply("bench").force();
    match component {
        Component::Serving => {
            Api::<KnativeServing>::namespaced(hub.clone(), "bench")
                .patch("bench", &params, &Patch::Apply(resource))
                .await
                .map(drop)?;
        }
        Component::Eventing => {
            Api::<KnativeEventing>::namespaced(hub.clone(), "bench")
                .patch("bench", &params, &Patch::Apply(resource))
                .await
                .map(drop)?;
        }
    }
    Ok(())
}

/// Times of a minimal apply, since its beginning.
struct Floor {
    written: Duration,
    established: Duration,
    available: Duration,
}

impl Floor {
    /// Time until the kinds are served and the Deployments are available.
    fn time(&self) -> Duration {
        self.established.max(self.available)
    }
}

/// Prints what was reached when, since the beginning of an installation: the first answer of the
/// cluster, the first definition, the last object, the last definition that was established, and
/// the last Deployment that was available.
fn print_progress(reached: &[(&str, Duration)]) {
    let text: Vec<_> = reached.iter().map(|(what, time)| format!("{what} {:.2}s", time.as_secs_f64())).collect();
    println!("  {:<32} {}", "", text.join(", "));
}

/// When those of `requests` for which `counts` is true were answered, except for watches, which
/// last.
fn answered(requests: &[Request], counts: impl Fn(&Request) -> bool) -> impl Iterator<Item = Timestamp> {
    let counted = requests.iter().filter(move |request| request.verb != "watch" && counts(request));
    counted.filter_map(|request| request.times.1.parse().ok())
}

/// The time from `started` to `at`; zero without one.
fn since(started: Timestamp, at: Option<Timestamp>) -> Duration {
    at.and_then(|at| at.duration_since(started).try_into().ok()).unwrap_or_default()
}

/// Applies all objects of `plan` (server-side apply), as concurrently as possible.
async fn minimal_apply(client: &Client, plan: &Plan, namespace: &str) -> Result<Floor> {
    let started = Instant::now();
    let first = [Phase::Namespaces, Phase::Definitions];
    for phase in first {
        apply_all(client, plan, plan.phase(phase).collect()).await?;
    }
    apply_all(client, plan, plan.items().iter().filter(|i| !first.contains(&i.phase())).collect()).await?;
    let written = started.elapsed();
    let deployments = Api::<Deployment>::namespaced(client.clone(), namespace);
    let available = async {
        for deployment in deployments.list(&ListParams::default()).await? {
            let name = deployment.metadata.name.unwrap_or_default();
            wait::until(&deployments, &name, LIMIT, "available", wait::available).await?;
        }
        Result::Ok(started.elapsed())
    };
    let established = async {
        wait::established(client.clone()).await?;
        Result::Ok(started.elapsed())
    };
    let (established, available) = tokio::try_join!(established, available)?;
    Ok(Floor { written, established, available })
}

async fn apply_all(client: &Client, plan: &Plan, items: Vec<&Item>) -> Result<()> {
    let params = PatchParams::apply("floor").force();
    let writes = items.into_iter().map(|item| {
        let mut object = item.object.parse();
        object["metadata"].as_object_mut().map(|m| m.remove("ownerReferences"));
        let params = &params;
        async move {
            let kind = plan.kinds().get(&item.gvk).ok_or_else(|| format!("{} is of an unknown kind", item.id))?;
            let api: Api<DynamicObject> = match item.id.namespace.as_str() {
                "" => Api::all_with(client.clone(), &kind.resource),
                namespace => Api::namespaced_with(client.clone(), namespace, &kind.resource),
            };
            loop {
                match api.patch(&item.id.name, params, &Patch::Apply(&object)).await {
                    Ok(_) => return Result::Ok(()),
                    // Its kind was defined a moment ago.
                    Err(kube::Error::Api(status)) if status.code == 404 => {
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                    Err(error) => return Err(error.into()),
                }
            }
        }
    });
    let mut writes = futures::stream::iter(writes).buffer_unordered(64);
    while let Some(written) = writes.next().await {
        written?;
    }
    Ok(())
}

#[allow(clippy::cast_precision_loss)] // small numbers, for people
fn ratio(a: usize, b: usize) -> f64 {
    a as f64 / b as f64
}
