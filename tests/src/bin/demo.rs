//! The main use case: starts a hub and two spokes, installs the chart, registers the spokes, and
//! applies a KnativeServing on the hub, until it is Ready on its spoke; tries a forbidden change
//! and causes drift; then rolls a KnativeFleet out to both spokes in two stages, and deletes it.

#![allow(clippy::print_stdout, clippy::print_stderr, clippy::large_futures)] // it runs once

use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::apps::v1::Deployment;
use knative_operator_shared::api::fleet::StageStatus;
use knative_operator_shared::api::{Condition, KnativeFleet, KnativeServing};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::remaining::{objects, remaining};
use knative_operator_tests::{Result, releases, tools, wait};
use kube::api::DeleteParams;
use kube::runtime::watcher::watch_object;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

const NAMESPACE: &str = "knative-serving";
const NAME: &str = "knative-serving-apac";
/// Time limit of a step.
const LIMIT: Duration = Duration::from_secs(120);

/// Results of the demo.
#[derive(Default)]
struct Summary {
    steps: Vec<(&'static str, Duration)>,
    pods: &'static str,
    release: String,
    refusal: String,
    status: String,
    left: Vec<String>,
}

impl Summary {
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
    println!("  refused: {}", summary.refusal);
    println!("  objects left on the spokes after the deletion, apart from CRDs: {}", summary.left.len());
    println!("  to look at it in a terminal and in a browser: KEEP=yes make demo");
    ExitCode::SUCCESS
}

async fn run(summary: &mut Summary) -> Result<()> {
    let releases = releases::best();
    println!("Knative Serving {} from {}", releases.serving, releases.dir.display());
    let clusters = async { tokio::try_join!(Cluster::hub("hub"), Cluster::spoke("spoke"), Cluster::spoke("other")) };
    let (hub, spoke, other) = summary.step("start a hub and two spokes", clusters).await?;
    let plugins = tempfile::tempdir()?;
    let mut values = product::values(&[]);
    values["knative_operator"]["fleet"] = json!({"enabled": true});
    let install = Product::install(&hub, &releases, values, plugins.path());
    let product = summary.step("helm install knative-operator on the hub, and start its Pods", install).await?;
    let (image, process) = ("containers, from images that make built", "processes, without images");
    summary.pods = if product.operator.contained { image } else { process };
    summary.release = format!("Knative Serving {}, Knative's own release", releases.serving);
    summary
        .step("register the spokes as ClusterProfiles fleet-system/spoke-1 and spoke-2", async {
            product::register(&hub, &spoke, "spoke-1").await?;
            product::register(&hub, &other, "spoke-2").await
        })
        .await?;

    let before = (objects(&spoke.client()).await?, objects(&other.client()).await?);
    let cr = json!({
        "apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
        "metadata": {"name": NAME, "namespace": NAMESPACE},
        "spec": {"version": releases.serving, "clusterProfileRef": {"name": "spoke-1", "namespace": FLEET}, "ingress": {"kourier": {"enabled": true}}},
    });
    hub.kubectl(&["create", "namespace", NAMESPACE], "").await?;
    summary
        .step(
            "kubectl apply a KnativeServing with clusterProfileRef, until it is Ready on the spoke",
            ready(&hub, &cr.to_string()),
        )
        .await?;
    println!("\n{}", indent(&hub.kubectl(&["get", "knativeserving", "-A"], "").await?));
    println!("{}", indent(&spoke.kubectl(&["get", "deployments", "-n", NAMESPACE], "").await?));
    println!(
        "{}",
        indent(&hub.kubectl(&["events", "-n", NAMESPACE, "--for", &format!("knativeserving/{NAME}")], "").await?)
    );

    summary.refusal =
        summary.step("try to move it to another cluster, which the webhook refuses", refused(&hub)).await?;
    println!("    {}", summary.refusal);
    summary.step("delete a Deployment on the spoke, which the operator repairs", repaired(&spoke)).await?;
    let fleet = fleet(releases.serving);
    let what = "kubectl apply a KnativeFleet, which adopts the KnativeServing, and until spoke-2 is Ready, too";
    summary.step(what, rolled_out(&hub, &fleet.to_string())).await?;
    println!("\n{}", indent(&hub.kubectl(&["get", "knativefleets,knativeservings", "-A"], "").await?));
    summary.status = status(&hub)?;
    println!("{}", indent(&summary.status));
    if keeps() {
        return keep(&hub).await;
    }
    summary.step("knative-operator fleet delete, which empties both spokes", deleted(&hub)).await?;
    let left = async { Ok([remaining(&spoke, &before.0).await?, remaining(&other, &before.1).await?].concat()) };
    summary.left = summary.step("list the remaining objects", left).await?;
    if !summary.left.is_empty() {
        return Err(format!("left behind: {:?}", summary.left).into());
    }
    Ok(())
}

/// A fleet of both spokes, in two stages.
fn fleet(version: &str) -> Value {
    let canary = json!({"matchLabels": {"tier": "canary"}});
    json!({
        "apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
        "metadata": {"name": "demo", "namespace": NAMESPACE},
        "spec": {
            "placement": {"clusterSelector": {}, "namespaces": [FLEET]},
            "serving": {"spec": {"version": version, "ingress": {"kourier": {"enabled": true}}}},
            "rollout": {"stages": [{"name": "canary", "clusterSelector": canary}, {"name": "prod"}]},
        },
    })
}

/// Applies `fleet` and prints the progress of its stages, until the rollout is complete.
async fn rolled_out(hub: &Cluster, fleet: &str) -> Result<()> {
    let started = Instant::now();
    let profile = ["label", "clusterprofile", "spoke-1", "-n", FLEET, "tier=canary"];
    hub.kubectl(&profile, "").await?;
    let adopt = ["annotate", "knativeserving", NAME, "-n", NAMESPACE, "operator.knative.dev/adopt=true"];
    hub.kubectl(&adopt, "").await?;
    hub.kubectl(&["apply", "-f", "-"], fleet).await?;
    let stream = watch_object(Api::<KnativeFleet>::namespaced(hub.client(), NAMESPACE), "demo");
    pin_mut!(stream);
    let mut shown = String::new();
    while let Some(event) = stream.next().await {
        let Some(status) = event?.and_then(|fleet| fleet.status) else { continue };
        let stage = |stage: &StageStatus| {
            format!("{} {}, {} of {} updated", stage.name, stage.state.as_str(), stage.updated, stage.clusters)
        };
        let stages: Vec<String> = status.stages.iter().map(stage).collect();
        let text = stages.join("; ");
        if text != shown {
            println!("    {:>5.1} s  {text}", started.elapsed().as_secs_f64());
            shown = text;
        }
        if status.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True") {
            return Ok(());
        }
    }
    Err("the watch ended".into())
}

/// The command: that of the image, if the demo runs images.
fn binary() -> Result<PathBuf> {
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let built = std::env::var("KNATIVE_IMAGES").map(|images| format!("{images}-dist/{architecture}/knative-operator"));
    let path = tools::project().join(built.unwrap_or_default());
    if path.is_file() { Ok(path) } else { tools::binary("knative-operator") }
}

/// What `knative-operator status` prints.
fn status(hub: &Cluster) -> Result<String> {
    let mut command = Command::new(binary()?);
    let output = command.args(["status", "--all-namespaces", "--kubeconfig"]).arg(hub.kubeconfig()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Deletes the fleet, and waits until it is gone.
async fn deleted(hub: &Cluster) -> Result<()> {
    let mut command = Command::new(binary()?);
    command.args(["fleet", "delete", "demo", "--yes", "--namespace", NAMESPACE, "--kubeconfig"]).arg(hub.kubeconfig());
    let output = command.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    hub.kubectl(&["wait", "--for=delete", "knativefleet/demo", "-n", NAMESPACE, "--timeout=2m"], "").await.map(drop)
}

/// Leaves everything running until Ctrl+C.
async fn keep(hub: &Cluster) -> Result<()> {
    let (command, kubeconfig) = (binary()?, hub.kubeconfig());
    let (command, kubeconfig) = (command.display(), kubeconfig.display());
    println!("\nThe hub and the spokes keep running. In another terminal:");
    println!("  {command} status --all-namespaces --watch --kubeconfig {kubeconfig}");
    println!("  {command} ui --kubeconfig {kubeconfig}");
    println!("Press Ctrl+C to tear everything down.");
    std::future::pending().await
}

/// Whether everything stays until Ctrl+C.
fn keeps() -> bool {
    std::env::var_os("KEEP").is_some_and(|keep| !keep.is_empty())
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {}\n", line.chars().take(150).collect::<String>())).collect()
}

/// Applies `cr` and prints its conditions as they change, until it is Ready.
async fn ready(hub: &Cluster, cr: &str) -> Result<()> {
    let started = Instant::now();
    hub.kubectl(&["apply", "-f", "-"], cr).await?;
    let stream = watch_object(Api::<KnativeServing>::namespaced(hub.client(), NAMESPACE), NAME);
    pin_mut!(stream);
    let mut shown: Vec<Condition> = Vec::new();
    while let Some(event) = stream.next().await {
        let conditions = event?.and_then(|s| s.status).map(|s| s.conditions).unwrap_or_default();
        for condition in conditions.iter().filter(|c| has_changed(&shown, c)) {
            let why = condition
                .message
                .as_deref()
                .map(|m| format!(": {}", m.chars().take(100).collect::<String>()))
                .unwrap_or_default();
            println!(
                "    {:>5.1} s  {} is {}{why}",
                started.elapsed().as_secs_f64(),
                condition.type_,
                condition.status
            );
        }
        shown = conditions;
        if shown.iter().any(|c| c.type_ == "Ready" && c.status == "True") {
            return Ok(());
        }
    }
    Err("the watch ended".into())
}

/// Whether `condition` changed since it was printed. Ready repeats one of the others.
fn has_changed(shown: &[Condition], condition: &Condition) -> bool {
    let before = shown.iter().find(|s| s.type_ == condition.type_);
    before
        .is_none_or(|s| s.status != condition.status || (condition.type_ != "Ready" && s.message != condition.message))
}

async fn refused(hub: &Cluster) -> Result<String> {
    let patch = json!({"spec": {"clusterProfileRef": {"name": "elsewhere"}}}).to_string();
    let outcome =
        hub.kubectl(&["patch", "knativeserving", NAME, "-n", NAMESPACE, "--type=merge", "-p", &patch], "").await;
    match outcome {
        Ok(_) => Err("the change was not refused".into()),
        Err(error) if error.to_string().contains("cannot be changed after creation") => Ok(error.to_string()),
        Err(other) => Err(other),
    }
}

async fn repaired(spoke: &Cluster) -> Result<()> {
    let deployments = Api::<Deployment>::namespaced(spoke.client(), NAMESPACE);
    let uid = deployments.get("controller").await?.uid();
    deployments.delete("controller", &DeleteParams::default()).await?;
    let back = |d: Option<&Deployment>| d.is_some_and(|d| d.uid() != uid);
    wait::until(&deployments, "controller", LIMIT, "put back", back).await.map(drop)
}
