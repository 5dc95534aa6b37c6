//! Faults made on purpose: what a user reads is the cause.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::real::product::ready;
use knative_operator_tests::real::{images, product};
use knative_operator_tests::{Result, releases, tools};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{NAMESPACE, Report, SERVING, apply, run};

/// Time limit until a condition names the causes.
const LIMIT: Duration = Duration::from_secs(120);

/// A strategic merge patch of the Pods of Deployment `name`.
fn patch(name: &str, pod: &Value) -> Value {
    let content = json!({"spec": {"template": {"spec": pod}}}).to_string();
    json!({"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "patch": {"type": "strategic", "content": content}})
}

/// Faults of five Deployments, and what the condition says about each. It has five causes at most.
fn faulty(mut spec: Value) -> (Value, [&'static str; 5]) {
    spec["registry"]["override"]["activator/activator"] = json!("registry.example/knative/activator:none");
    let env = json!([{"name": "LIMIT", "valueFrom": {"secretKeyRef": {"name": "none", "key": "a"}}}]);
    let volume = json!({"volumes": [{"name": "none", "secret": {"secretName": "absent"}}],
        "containers": [{"name": "webhook", "volumeMounts": [{"name": "none", "mountPath": "/none"}]}]});
    spec["patches"] = json!([
        patch("net-kourier-controller", &json!({"containers": [{"name": "controller", "env": env}]})),
        patch("3scale-kourier-gateway", &json!({"hostPID": true})),
        patch("webhook", &volume),
    ]);
    spec["workloads"] = json!([{"name": "autoscaler-hpa", "nodeSelector": {"disk": "none"}}]);
    let expected = [
        r#"cannot pull image "registry.example/knative/activator:none": not found"#,
        r#"secret "none" not found"#,
        "violates PodSecurity",
        r#"secret "absent" not found"#,
        "no node fits: 0/1 nodes are available",
    ];
    (spec, expected)
}

/// The same for containers that end, are never ready, have no program, or would be root.
fn crashing(mut spec: Value) -> (Value, [&'static str; 4]) {
    let get = json!({"path": "/nothing", "port": 9, "scheme": "HTTP"});
    let probe = json!({"httpGet": get, "failureThreshold": 3, "periodSeconds": 2});
    let container = |fields: &Value| json!({"containers": [fields]});
    spec["patches"] = json!([
        patch("activator", &container(&json!({"name": "activator", "readinessProbe": probe}))),
        patch("autoscaler", &container(&json!({"name": "autoscaler", "command": ["/none"]}))),
    ]);
    // An image of files, whose config names no user.
    spec["registry"]["override"]["autoscaler-hpa/autoscaler-hpa"] = json!("registry.example/releases:test");
    let minimum = json!([{"name": "KUBERNETES_MIN_VERSION", "value": "v99.0.0"}]);
    spec["workloads"] = json!([{"name": "controller", "env": [{"container": "controller", "envVars": minimum}]}]);
    let expected = [
        "connection refused",
        "is not compatible, need at least '99.0.0-0'",
        r#"cannot execute the command of container "autoscaler""#,
        r#"container "autoscaler-hpa" must not run as root"#,
    ];
    (spec, expected)
}

/// The message of the condition `DeploymentsAvailable`.
const DEPLOYMENTS: &str = r#"jsonpath={.status.conditions[?(@.type=="DeploymentsAvailable")].message}"#;
/// The messages of all conditions.
const ALL: &str = "jsonpath={.status.conditions[*].message}";

/// What `path` finds in the status.
async fn message(hub: &Cluster, path: &str) -> Result<String> {
    hub.kubectl(&["get", SERVING, "-n", NAMESPACE, "-o", path], "").await
}

/// Waits until the condition has had all of `parts`: it is cut if there are many causes.
async fn tells(report: &mut Report, hub: &Cluster, parts: &[&str]) -> Result<()> {
    tells_in(report, hub, DEPLOYMENTS, parts).await
}

async fn tells_in(report: &mut Report, hub: &Cluster, path: &str, parts: &[&str]) -> Result<()> {
    let begun = Instant::now();
    let mut found = BTreeSet::new();
    loop {
        let message = message(hub, path).await?;
        for part in parts.iter().filter(|part| message.contains(**part)) {
            if found.insert(*part) {
                report.line(&format!("the condition has: {part}"));
            }
        }
        if found.len() == parts.len() {
            report.line(&format!("the condition is: {message}"));
            return Ok(());
        }
        if begun.elapsed() > LIMIT {
            let missing: Vec<_> = parts.iter().filter(|part| !found.contains(**part)).collect();
            return Err(format!("{missing:?} are not in: {message}\n{}", product::pods(hub).await).into());
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// Runs `knative-operator wait`; its exit status, output, and duration.
async fn wait(hub: &Cluster) -> Result<(Option<i32>, String, Duration)> {
    let begun = Instant::now();
    let mut command = Command::new(tools::binary("knative-operator")?);
    command.args(["wait", SERVING, "-n", NAMESPACE, "--timeout", "60s", "--kubeconfig"]).arg(hub.kubeconfig());
    let output = command.output().await?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.code(), String::from_utf8_lossy(&text).into_owned(), begun.elapsed()))
}

/// A hub on which the chart is installed, with an empty namespace for Knative.
async fn hub(report: &mut Report) -> Result<Cluster> {
    let hub = Cluster::real("faults", images::registry().await?).await?;
    product::install(&hub, &product::values()).await?;
    report.line("the chart is installed, its Pods are ready");
    hub.kubectl(&["create", "namespace", NAMESPACE], "").await?;
    Ok(hub)
}

#[test]
fn condition_names_the_cause_of_each_fault() {
    run(async {
        let mut report = Report::new();
        let hub = hub(&mut report).await?;
        hub.kubectl(&["label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=baseline"], "").await?;
        let healthy = product::serving(releases::best().serving);
        let (faulty, expected) = faulty(healthy.clone());
        apply(&hub, &faulty).await?;
        tells(&mut report, &hub, &expected).await?;
        // A new Pod that fails replaces none that is available.
        let (crashing, expected) = crashing(healthy.clone());
        apply(&hub, &crashing).await?;
        hub.kubectl(&["delete", "deployment", "controller", "activator", "autoscaler", "-n", NAMESPACE], "").await?;
        tells(&mut report, &hub, &expected).await?;
        apply(&hub, &healthy).await?;
        ready(&hub, SERVING, NAMESPACE).await?;
        report.line("without the faults, it is Ready");

        // A quota that leaves no room for another Pod.
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": NAMESPACE}, "spec": {"hard": {"pods": "0"}}});
        hub.kubectl(&["apply", "-f", "-"], &quota.to_string()).await?;
        hub.kubectl(&["delete", "pod", "-n", NAMESPACE, "-l", "app=activator"], "").await?;
        tells(&mut report, &hub, &["exceeded quota: none"]).await
    });
}

#[test]
fn condition_names_a_cause_once_and_wait_ends() {
    run(async {
        let mut report = Report::new();
        let hub = hub(&mut report).await?;
        let healthy = product::serving(releases::best().serving);
        // Too little memory for what the controller watches.
        let mut limited = healthy.clone();
        limited["workloads"] = json!([{"name": "controller", "resources": [
            {"container": "controller", "limits": {"memory": "12Mi"}, "requests": {"memory": "8Mi"}}]}]);
        apply(&hub, &limited).await?;
        tells(&mut report, &hub, &["OOMKilled"]).await?;

        // A registry that can't be reached, and a name that is no image: the same for all.
        let mut nowhere = healthy.clone();
        nowhere["registry"]["override"]["autoscaler-hpa/autoscaler-hpa"] =
            json!("registry.example/knative/queue-proxy:1.22");
        hub.reach_registry(false)?;
        apply(&hub, &nowhere).await?;
        hub.kubectl(&["delete", "deployment", "autoscaler-hpa", "-n", NAMESPACE], "").await?;
        tells(&mut report, &hub, &[r#"cannot pull image "registry.example/knative/queue-proxy:1.22""#]).await?;
        hub.reach_registry(true)?;
        let mut invalid = healthy;
        let image = |name: &str| patch(name, &json!({"containers": [{"name": name, "image": "UPPER"}]}));
        invalid["patches"] = json!(["activator", "autoscaler", "controller", "webhook"].map(image));
        apply(&hub, &invalid).await?;
        hub.kubectl(&["delete", "deployment", "--all", "-n", NAMESPACE, "--wait=false"], "").await?;
        tells(&mut report, &hub, &["invalid image name"]).await?;
        let message = message(&hub, DEPLOYMENTS).await?;
        assert_eq!(message.matches("invalid image name").count(), 1, "one cause stands there once");
        let (code, text, took) = wait(&hub).await?;
        report.line(&format!("knative-operator wait ended with {code:?} after {took:.1?}: {}", text.trim()));
        assert!(code != Some(0) && took < Duration::from_secs(30), "{text}");
        Ok(())
    });
}

#[test]
fn condition_names_a_lost_node_and_a_failing_job() {
    run(async {
        let mut report = Report::new();
        let mut hub = hub(&mut report).await?;
        let version = releases::best().serving;
        let healthy = product::serving(version);
        // The Job runs another program, which ends with an error, and isn't tried again.
        let mut failing = healthy.clone();
        let job = format!("storage-version-migration-serving-serving-{version}");
        failing["patches"] = json!([{"target": {"apiVersion": "batch/v1", "kind": "Job", "name": job},
            "patch": {"type": "strategic", "content": r#"{"spec": {"backoffLimit": 0}}"#}}]);
        failing["registry"]["override"]["migrate"] = healthy["config"]["deployment"]["queue-sidecar-image"].clone();
        apply(&hub, &failing).await?;
        tells_in(&mut report, &hub, ALL, &[&format!("Job {job} failed: BackoffLimitExceeded")]).await?;
        hub.kubectl(&["delete", "jobs", "--all", "-n", NAMESPACE, "--wait=false"], "").await?;
        apply(&hub, &healthy).await?;
        ready(&hub, SERVING, NAMESPACE).await?;
        report.line("without the faults, it is Ready");
        hub.stop_kubelet()?;
        tells(&mut report, &hub, &["the node \"", "does not respond"]).await?;
        hub.restart_node().await?;
        ready(&hub, SERVING, NAMESPACE).await?;
        report.line("the node is back, it is Ready");
        Ok(())
    });
}
