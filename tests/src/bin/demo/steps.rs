//! The steps of the demo.

use std::path::PathBuf;
use std::process::Command;
use std::time::Instant;

use futures::{StreamExt, pin_mut};
use k8s_openapi::api::apps::v1::Deployment;
use knative_operator_shared::api::fleet::StageStatus;
use knative_operator_shared::api::{Condition, KnativeFleet, KnativeServing};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::FLEET;
use knative_operator_tests::{Result, tools, wait};
use kube::api::DeleteParams;
use kube::runtime::watcher::watch_object;
use kube::{Api, ResourceExt};
use serde_json::{Value, json};

use crate::{LIMIT, NAME, NAMESPACE};

/// A fleet of both spokes with the spec `serving`, in two stages.
pub fn fleet(serving: &Value) -> Value {
    let canary = json!({"matchLabels": {"tier": "canary"}});
    json!({
        "apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
        "metadata": {"name": "demo", "namespace": NAMESPACE},
        "spec": {
            "placement": {"clusterSelector": {}, "namespaces": [FLEET]},
            "serving": {"spec": serving},
            "rollout": {"stages": [{"name": "canary", "clusterSelector": canary}, {"name": "prod"}]},
        },
    })
}

/// Applies `fleet` and prints the progress of its stages, until the rollout is complete.
pub async fn rolled_out(hub: &Cluster, fleet: &str) -> Result<()> {
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
pub fn status(hub: &Cluster) -> Result<String> {
    let mut command = Command::new(binary()?);
    let output = command.args(["status", "--all-namespaces", "--kubeconfig"]).arg(hub.kubeconfig()).output()?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Deletes the fleet, prints what the deletion of a KnativeServing waits for, and waits until all
/// is gone.
pub async fn deleted(hub: &Cluster) -> Result<()> {
    let started = Instant::now();
    let mut command = Command::new(binary()?);
    command.args(["fleet", "delete", "demo", "--yes", "--namespace", NAMESPACE, "--kubeconfig"]).arg(hub.kubeconfig());
    let output = command.output()?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into());
    }
    let is_gone = |serving: Option<&KnativeServing>| serving.is_none();
    tokio::time::timeout(LIMIT, print_conditions(hub, started, is_gone)).await.map_err(|_| "it isn't deleted")??;
    hub.kubectl(&["wait", "--for=delete", "knativefleet/demo", "-n", NAMESPACE, "--timeout=2m"], "").await.map(drop)
}

/// Leaves everything running until Ctrl+C.
pub async fn keep(hub: &Cluster) -> Result<()> {
    let (command, kubeconfig) = (binary()?, hub.kubeconfig());
    let (command, kubeconfig) = (command.display(), kubeconfig.display());
    println!("\nThe hub and the spokes keep running. In another terminal:");
    println!("  {command} status --all-namespaces --watch --kubeconfig {kubeconfig}");
    println!("  {command} ui --kubeconfig {kubeconfig}");
    println!("Press Ctrl+C to tear everything down.");
    std::future::pending().await
}

/// Whether everything stays until Ctrl+C.
pub fn keeps() -> bool {
    std::env::var_os("KEEP").is_some_and(|keep| !keep.is_empty())
}

pub fn indent(text: &str) -> String {
    text.lines().map(|line| format!("    {}\n", line.chars().take(150).collect::<String>())).collect()
}

/// Applies `cr` and prints its conditions as they change, until it is Ready.
pub async fn ready(hub: &Cluster, cr: &str) -> Result<()> {
    let started = Instant::now();
    hub.kubectl(&["apply", "-f", "-"], cr).await?;
    let is_ready = |serving: Option<&KnativeServing>| {
        let status = serving.and_then(|serving| serving.status.as_ref());
        status.is_some_and(|s| s.conditions.iter().any(|c| c.type_ == "Ready" && c.status == "True"))
    };
    print_conditions(hub, started, is_ready).await
}

/// Prints the conditions of the KnativeServing as they change, until `is_done`.
async fn print_conditions(
    hub: &Cluster,
    started: Instant,
    is_done: impl Fn(Option<&KnativeServing>) -> bool,
) -> Result<()> {
    let stream = watch_object(Api::<KnativeServing>::namespaced(hub.client(), NAMESPACE), NAME);
    pin_mut!(stream);
    let mut shown: Vec<Condition> = Vec::new();
    while let Some(event) = stream.next().await {
        let serving = event?;
        let conditions = serving.as_ref().and_then(|s| s.status.as_ref()).map(|s| s.conditions.clone());
        let conditions = conditions.unwrap_or_default();
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
        if is_done(serving.as_ref()) {
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

pub async fn refused(hub: &Cluster) -> Result<String> {
    let patch = json!({"spec": {"clusterProfileRef": {"name": "elsewhere"}}}).to_string();
    let outcome =
        hub.kubectl(&["patch", "knativeserving", NAME, "-n", NAMESPACE, "--type=merge", "-p", &patch], "").await;
    match outcome {
        Ok(_) => Err("the change was not refused".into()),
        Err(error) if error.to_string().contains("cannot be changed after creation") => Ok(error.to_string()),
        Err(other) => Err(other),
    }
}

pub async fn repaired(spoke: &Cluster) -> Result<()> {
    let deployments = Api::<Deployment>::namespaced(spoke.client(), NAMESPACE);
    let uid = deployments.get("controller").await?.uid();
    deployments.delete("controller", &DeleteParams::default()).await?;
    let back = |d: Option<&Deployment>| d.is_some_and(|d| d.uid() != uid);
    wait::until(&deployments, "controller", LIMIT, "put back", back).await.map(drop)
}
