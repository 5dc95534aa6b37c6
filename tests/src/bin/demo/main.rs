//! The main use case: starts a hub and two spokes, installs the chart, registers the spokes, and
//! applies a KnativeServing on the hub, until it is Ready on its spoke; tries a forbidden change
//! and causes drift; then rolls a KnativeFleet out to both spokes in two stages, and deletes it.
//! With real nodes, a Knative Service answers HTTP requests all the while.

#![allow(clippy::print_stdout, clippy::print_stderr, clippy::large_futures)] // it runs once

mod answers;
mod scene;
mod steps;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use knative_operator_tests::product::{self, FLEET};
use knative_operator_tests::real::images;
use knative_operator_tests::remaining::{objects, remaining};
use knative_operator_tests::{Result, releases, wait};
use serde_json::json;

use scene::Scene;
use steps::{indent, keeps};

const NAMESPACE: &str = "knative-serving";
const NAME: &str = "knative-serving-apac";
/// The version before that of the demo's releases.
const EARLIER: &str = "1.22.0";
/// The minor version before, and a version of it.
const EARLIER_MINOR: (&str, &str) = ("1.21", "1.21.3");
/// Time limit of a step.
const LIMIT: Duration = wait::LIMIT;

/// Results of the demo.
#[derive(Default)]
struct Summary {
    steps: Vec<(&'static str, Duration)>,
    pods: &'static str,
    release: String,
    answers: Vec<String>,
    refusal: String,
    status: String,
    left: Vec<String>,
}

impl Summary {
    /// Notes and prints how requests were answered.
    fn answer(&mut self, text: String) {
        println!("    {text}");
        self.answers.push(text);
    }

    /// Runs one step and prints its duration.
    async fn step<T>(&mut self, what: &'static str, step: impl Future<Output = Result<T>>) -> Result<T> {
        println!("\n==> {what}");
        let started = Instant::now();
        let outcome =
            tokio::time::timeout(LIMIT, step).await.unwrap_or_else(|_| Err(format!("not done after {LIMIT:?}").into()));
        let took = started.elapsed();
        match &outcome {
            Ok(_) => println!("    done in {took:.1?}"),
            Err(error) => println!("    FAILED after {took:.1?}: {error}"),
        }
        self.steps.push((what, took));
        outcome
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let started = Instant::now();
    let mut summary = Summary::default();
    // An interrupt stops the processes of the demo, too.
    let outcome = tokio::select! {
        outcome = run(&mut summary) => outcome,
        _ = tokio::signal::ctrl_c() => Err("interrupted".into()),
    };
    println!("\nSummary");
    for (what, took) in &summary.steps {
        println!("  {:>6.1} s  {what}", took.as_secs_f64());
    }
    println!("  {:>6.1} s  in all", started.elapsed().as_secs_f64());
    if let Err(error) = outcome
        && (!keeps() || summary.status.is_empty())
    {
        eprintln!("\nThe demo failed: {error}");
        return ExitCode::FAILURE;
    }
    println!("  installed: {}", summary.release);
    println!("  operator and webhook ran as {}", summary.pods);
    for answer in &summary.answers {
        println!("  requests: {answer}");
    }
    println!("  refused: {}", summary.refusal);
    println!("  objects left on the spokes after the deletion, apart from CRDs: {}", summary.left.len());
    println!("  to look at it in a terminal and in a browser: KEEP=yes make demo");
    ExitCode::SUCCESS
}

async fn run(summary: &mut Summary) -> Result<()> {
    let releases = releases::best();
    println!("Knative Serving {} from {}", releases.serving, releases.dir.display());
    let real = scene::real_nodes();
    let by_minor = std::env::var_os("MINOR").is_some_and(|wanted| !wanted.is_empty());
    let (minor, earlier) = if by_minor { (Some(EARLIER_MINOR.0), EARLIER_MINOR.1) } else { (None, EARLIER) };
    let registry = images::registry_with(minor);
    let registry = if real { Some(summary.step("start a registry with all images", registry).await?) } else { None };
    let what = if real { "start a hub and two spokes with real nodes" } else { "start a hub and two spokes" };
    let scene = summary.step(what, Scene::start(registry)).await?;
    let Scene { hub, spoke, other, .. } = &scene;
    let what = "helm install knative-operator on the hub, and start its Pods";
    let installed = summary.step(what, scene.install(&releases)).await?;
    summary.pods = installed.pods;
    let register = async {
        product::register(hub, spoke, "spoke-1").await?;
        product::register(hub, other, "spoke-2").await
    };
    summary.step("register the spokes as ClusterProfiles fleet-system/spoke-1 and spoke-2", register).await?;

    let before = (objects(&spoke.client()).await?, objects(&other.client()).await?);
    let (first, version) = (if real { earlier } else { releases.serving }, releases.serving);
    let mut spec = scene.serving(first);
    spec["clusterProfileRef"] = json!({"name": "spoke-1", "namespace": FLEET});
    let cr = json!({
        "apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
        "metadata": {"name": NAME, "namespace": NAMESPACE}, "spec": spec,
    });
    hub.kubectl(&["create", "namespace", NAMESPACE], "").await?;
    let what = "kubectl apply a KnativeServing with clusterProfileRef, until it is Ready on the spoke";
    summary.step(what, steps::ready(hub, &cr.to_string())).await?;
    println!("\n{}", indent(&hub.kubectl(&["get", "knativeserving", "-A"], "").await?));
    println!("{}", indent(&spoke.kubectl(&["get", "deployments", "-n", NAMESPACE], "").await?));
    let events = ["events", "-n", NAMESPACE, "--for", &format!("knativeserving/{NAME}")];
    println!("{}", indent(&hub.kubectl(&events, "").await?));
    let warnings = hub.kubectl(&[&events[..], &["--types=Warning"]].concat(), "").await?;
    if !warnings.is_empty() {
        return Err(format!("Warning events of a healthy installation:\n{warnings}").into());
    }
    if real {
        let what = "a Knative Service on the spoke is scaled to zero, and answers";
        let answer = summary.step(what, answers::from_zero(spoke)).await?;
        summary.answer(answer);
    }
    summary.refusal =
        summary.step("try to move it to another cluster, which the webhook refuses", steps::refused(hub)).await?;
    println!("    {}", summary.refusal);
    let what = "delete a Deployment on the spoke, which the operator repairs";
    if real {
        let outcome = summary.step(what, answers::repaired(spoke)).await?;
        summary.answer(format!("during the repair: {outcome}"));
        let next = scene.serving(version);
        let what = "upgrade Knative on the spoke";
        let outcome = summary.step(what, answers::upgraded(hub, spoke, &next)).await?;
        summary.answer(format!("during the upgrade from {first} to {version}: {outcome}"));
    } else {
        summary.step(what, steps::repaired(spoke)).await?;
    }
    summary.release = format!("Knative Serving {version}, Knative's own release");
    let fleet = steps::fleet(&scene.serving(version));
    let what = "kubectl apply a KnativeFleet, which adopts the KnativeServing, and until spoke-2 is Ready, too";
    summary.step(what, steps::rolled_out(hub, &fleet.to_string())).await?;
    println!("\n{}", indent(&hub.kubectl(&["get", "knativefleets,knativeservings", "-A"], "").await?));
    summary.status = steps::status(hub)?;
    println!("{}", indent(&summary.status));
    if keeps() {
        return steps::keep(hub).await;
    }
    if real {
        summary.step("delete the Knative Services", answers::deleted(spoke)).await?;
        let what = "knative-operator fleet delete, which empties both spokes; their Pods don't drain";
        let all = async {
            tokio::try_join!(
                steps::deleted(hub),
                answers::ended(spoke, "default"),
                answers::ended(spoke, NAMESPACE),
                answers::ended(other, NAMESPACE)
            )
        };
        summary.step(what, all).await?;
        println!("    no Knative Service is left, so nothing drains: kubectl delete pods --all -n {NAMESPACE} --force");
    } else {
        summary.step("knative-operator fleet delete, which empties both spokes", steps::deleted(hub)).await?;
    }
    let left = async { Ok([remaining(spoke, &before.0).await?, remaining(other, &before.1).await?].concat()) };
    summary.left = summary.step("list the remaining objects", left).await?;
    if !summary.left.is_empty() {
        return Err(format!("left behind: {:?}", summary.left).into());
    }
    Ok(())
}
