//! Requests while something changes: how many fail, and how many fail if `kubectl apply` makes the
//! same change.

use std::net::SocketAddr;
use std::time::Instant;

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::NAMESPACE as OPERATOR;
use knative_operator_tests::real::load::{self, services};
use knative_operator_tests::real::product::ready;
use knative_operator_tests::real::{images, product};
use knative_operator_tests::{Result, releases, tools};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::healthy::Healthy;
use crate::support::{NAMESPACE, Report, SERVING, apply, run};

/// Makes `change` while requests flow; returns how many requests to the running Knative Service
/// failed.
pub async fn during(
    report: &mut Report,
    gateway: SocketAddr,
    what: &str,
    change: impl Future<Output = Result<()>>,
) -> Result<usize> {
    let outcome = load::during(gateway, change).await?;
    report.line(&format!("{what} ({:.1} s): {outcome}", outcome.took.as_secs_f64()));
    Ok(outcome.warm.failed())
}

/// The objects that `spec` means, as `kubectl apply` takes them.
pub async fn rendered(cluster: &Cluster, spec: &Value) -> Result<String> {
    let meta = json!({"name": "knative-serving", "namespace": NAMESPACE});
    let resource =
        json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing", "metadata": meta, "spec": spec});
    let file = cluster.dir().join("rendered.json");
    std::fs::write(&file, resource.to_string())?;
    let mut command = Command::new(tools::binary("knative-operator")?);
    command.args(["render", "-o", "json", "--releases"]).arg(&releases::best().dir).arg("-f").arg(&file);
    let output = command.output().await?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned().into());
    }
    let mut list: Value = serde_json::from_slice(&output.stdout)?;
    for object in list["items"].as_array_mut().into_iter().flatten() {
        // Nothing owns them here.
        object["metadata"].as_object_mut().and_then(|meta| meta.remove("ownerReferences"));
    }
    Ok(list.to_string())
}

/// Applies `objects` with kubectl, until all Deployments are available.
pub async fn kubectl_apply(cluster: &Cluster, objects: &str) -> Result<()> {
    let line = ["apply", "--server-side", "--force-conflicts", "-f", "-"];
    // What Knative's webhooks admit is applied once they answer.
    let begun = Instant::now();
    while let Err(error) = cluster.kubectl(&line, objects).await {
        if begun.elapsed() > product::READY {
            return Err(error);
        }
    }
    let rolled = ["rollout", "status", "deployment", "-n", NAMESPACE, "--timeout=120s"];
    cluster.kubectl(&rolled, "").await.map(drop)
}

/// Another value of a key of a ConfigMap, which Knative's controllers read without a restart.
fn reconfigured(mut spec: Value) -> Value {
    spec["config"]["defaults"] = json!({"revision-timeout-seconds": "301"});
    spec
}

/// More CPU for the activator and the gateway: their Pods are replaced.
fn replaced(mut spec: Value) -> Value {
    let pods = |name: &str| json!({"name": name, "annotations": {"turn": "1"}});
    spec["workloads"] = json!([
        pods("activator"),
        pods("autoscaler"),
        pods("controller"),
        pods("webhook"),
        pods("net-kourier-controller"),
        pods("3scale-kourier-gateway")
    ]);
    spec
}

#[test]
fn requests_during_changes_fail_no_more_than_with_kubectl_apply() {
    run(async {
        let mut report = Report::new();
        let registry = images::registry().await?;
        let spec = product::serving(releases::best().serving);
        let (floor_config, floor_pods) = {
            let floor = Cluster::real("floor", registry).await?;
            // Its Pods take place on the node here, too.
            product::install(&floor, &product::values()).await?;
            kubectl_apply(&floor, &rendered(&floor, &spec).await?).await?;
            let gateway = services(&floor).await?;
            report.line("with kubectl apply: the Knative Services are Ready");
            let objects = rendered(&floor, &reconfigured(spec.clone())).await?;
            let change = kubectl_apply(&floor, &objects);
            let config = during(&mut report, gateway, "kubectl apply: a key of a ConfigMap", change).await?;
            let objects = rendered(&floor, &replaced(spec.clone())).await?;
            let change = kubectl_apply(&floor, &objects);
            (config, during(&mut report, gateway, "kubectl apply: all Pods of Knative are replaced", change).await?)
        };
        let mut hub = Cluster::real("traffic", registry).await?;
        product::install(&hub, &product::values()).await?;
        hub.kubectl(&["create", "namespace", NAMESPACE], "").await?;
        let healthy = Healthy::watch(&hub);
        apply(&hub, &spec).await?;
        ready(&hub, SERVING, NAMESPACE).await?;
        let gateway = services(&hub).await?;
        report.line("with the operator: the Knative Services are Ready");
        let applied = |spec: Value| {
            let hub = &hub;
            async move {
                apply(hub, &spec).await?;
                rolled_out(hub).await
            }
        };
        let config = during(&mut report, gateway, "a key of a ConfigMap", applied(reconfigured(spec.clone()))).await?;
        let pods =
            during(&mut report, gateway, "all Pods of Knative are replaced", applied(replaced(spec.clone()))).await?;
        healthy.assert(&hub, "changes").await?;
        let killed = during(&mut report, gateway, "the operator is killed", async {
            let line = ["delete", "pod", "-n", OPERATOR, "--all", "--force", "--grace-period=0"];
            hub.kubectl(&line, "").await?;
            hub.kubectl(&["rollout", "status", "deployment", "-n", OPERATOR, "--timeout=120s"], "").await.map(drop)
        });
        let killed = killed.await?;
        let upgraded = during(&mut report, gateway, "the operator is upgraded", async {
            let chart = tools::project().join("charts/knative-operator").display().to_string();
            let turn = "knative_operator.knative_operator.podAnnotations.turn=1,knative_operator.operator_webhook.podAnnotations.turn=1";
            let place =
                ["-n", OPERATOR, "--reset-then-reuse-values", "--set-string", turn, "--wait", "--timeout", "3m"];
            hub.helm(&[&["upgrade", "knative-operator", &chart][..], &place].concat()).await.map(drop)
        });
        let upgraded = upgraded.await?;
        let repaired = during(&mut report, gateway, "the controller's Deployment is deleted, and repaired", async {
            hub.kubectl(&["delete", "deployment", "controller", "-n", NAMESPACE], "").await?;
            hub.kubectl(&["wait", "deployment", "controller", "-n", NAMESPACE, "--for=create", "--timeout=30s"], "")
                .await?;
            rolled_out(&hub).await
        });
        let repaired = repaired.await?;
        let restarted = during(&mut report, gateway, "kubelet and containerd of the node are killed", async {
            hub.restart_node().await?;
            ready(&hub, SERVING, NAMESPACE).await
        });
        let restarted = restarted.await?;
        assert!(config <= floor_config && pods <= floor_pods, "{config} > {floor_config} or {pods} > {floor_pods}");
        assert_eq!([killed, upgraded, repaired, restarted], [0; 4]);
        Ok(())
    });
}

/// Waits until the resource is Ready and all Deployments are rolled out.
pub async fn rolled_out(hub: &Cluster) -> Result<()> {
    hub.kubectl(&["rollout", "status", "deployment", "-n", NAMESPACE, "--timeout=120s"], "").await?;
    ready(hub, SERVING, NAMESPACE).await
}

/// The minor version before that of the releases: its images are pushed by the test.
const EARLIER: (&str, &str) = ("1.21", "1.21.3");

#[test]
fn requests_during_an_upgrade_by_a_minor_fail_no_more_than_with_kubectl_apply() {
    run(async {
        let mut report = Report::new();
        let registry = images::registry().await?;
        let (minor, earlier) = EARLIER;
        tokio::task::block_in_place(|| images::push_minor(registry, minor))?;
        let (before, after) = (product::serving(earlier), product::serving(releases::best().serving));
        let floor = {
            let floor = Cluster::real("floor", registry).await?;
            // Its Pods take place on the node here, too.
            product::install(&floor, &product::values()).await?;
            kubectl_apply(&floor, &rendered(&floor, &before).await?).await?;
            let gateway = services(&floor).await?;
            report.line(&format!("with kubectl apply: {earlier} is installed"));
            let objects = rendered(&floor, &after).await?;
            during(&mut report, gateway, "kubectl apply: the next minor", kubectl_apply(&floor, &objects)).await?
        };
        let hub = Cluster::real("upgraded", registry).await?;
        product::install(&hub, &product::values()).await?;
        hub.kubectl(&["create", "namespace", NAMESPACE], "").await?;
        let healthy = Healthy::watch(&hub);
        apply(&hub, &before).await?;
        ready(&hub, SERVING, NAMESPACE).await?;
        let gateway = services(&hub).await?;
        report.line(&format!("with the operator: {earlier} is installed"));
        let own = during(&mut report, gateway, "the next minor", async {
            apply(&hub, &after).await?;
            let installed = format!("--for=jsonpath={{.status.version}}={}", releases::best().serving);
            hub.kubectl(&["wait", SERVING, "-n", NAMESPACE, &installed, "--timeout=180s"], "").await?;
            rolled_out(&hub).await
        });
        let own = own.await?;
        healthy.assert(&hub, "an upgrade by a minor").await?;
        assert!(own <= floor, "{own} > {floor}");
        Ok(())
    });
}
