//! Faults made on purpose: what a user reads is the cause.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::real::{images, product};
use knative_operator_tests::{Result, releases, tools};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::support::{NAMESPACE, Report, SERVING, apply, ready, run};

/// Time limit until a condition names the causes.
const LIMIT: Duration = Duration::from_secs(120);

/// A strategic merge patch of the Pods of Deployment `name`.
fn patch(name: &str, pod: &Value) -> Value {
    let content = json!({"spec": {"template": {"spec": pod}}}).to_string();
    json!({"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}, "patch": {"type": "strategic", "content": content}})
}

/// The faults, by Deployment: how the spec gets it, and what the condition says about it.
fn faulty(mut spec: Value) -> (Value, [(&'static str, &'static str); 7]) {
    spec["registry"]["override"]["activator/activator"] = json!("registry.example/knative/activator:none");
    let env = json!([{"name": "LIMIT", "valueFrom": {"secretKeyRef": {"name": "none", "key": "a"}}}]);
    let probe = json!({"httpGet": {"path": "/nothing", "port": 8080, "scheme": "HTTP"}, "failureThreshold": 3, "periodSeconds": 2});
    spec["patches"] = json!([
        patch("net-kourier-controller", &json!({"containers": [{"name": "controller", "env": env}]})),
        patch("3scale-kourier-gateway", &json!({"hostPID": true})),
        patch("autoscaler", &json!({"containers": [{"name": "autoscaler", "readinessProbe": probe}]})),
        patch(
            "webhook",
            &json!({"volumes": [{"name": "none", "secret": {"secretName": "absent"}}],
            "containers": [{"name": "webhook", "volumeMounts": [{"name": "none", "mountPath": "/none"}]}]})
        ),
    ]);
    let minimum =
        json!([{"container": "controller", "envVars": [{"name": "KUBERNETES_MIN_VERSION", "value": "v99.0.0"}]}]);
    spec["workloads"] = json!([
        {"name": "autoscaler-hpa", "nodeSelector": {"disk": "none"}},
        {"name": "controller", "env": minimum},
    ]);
    let expected = [
        ("activator", r#"cannot pull image "registry.example/knative/activator:none": not found"#),
        ("net-kourier-controller", r#"secret "none" not found"#),
        ("3scale-kourier-gateway", "violates PodSecurity"),
        ("autoscaler", "readiness probe: HTTP probe failed with statuscode: 404"),
        ("webhook", r#"secret "absent" not found"#),
        ("autoscaler-hpa", "no node fits: 0/1 nodes are available"),
        ("controller", "not compatible, need at least 99.0.0"),
    ];
    (spec, expected)
}

/// The message of the condition `DeploymentsAvailable`.
async fn message(hub: &Cluster) -> Result<String> {
    let path = r#"jsonpath={.status.conditions[?(@.type=="DeploymentsAvailable")].message}"#;
    hub.kubectl(&["get", SERVING, "-n", NAMESPACE, "-o", path], "").await
}

/// Waits until the condition has all of `parts`; prints the clauses that have them.
async fn tells(report: &mut Report, hub: &Cluster, parts: &[&str]) -> Result<()> {
    let begun = Instant::now();
    let mut found = BTreeSet::new();
    loop {
        let message = message(hub).await?;
        for part in parts.iter().filter(|part| message.contains(**part)) {
            if found.insert(*part) {
                report.line(&format!("the condition has: {part}"));
            }
        }
        if parts.iter().all(|part| message.contains(part)) {
            report.line(&format!("the condition is: {message}"));
            return Ok(());
        }
        if begun.elapsed() > LIMIT {
            let missing: Vec<_> = parts.iter().filter(|part| !message.contains(**part)).collect();
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

#[test]
fn condition_names_the_cause_of_each_fault() {
    run(async {
        let mut report = Report::new();
        let registry = images::registry().await?;
        let hub = Cluster::real("faults", registry).await?;
        product::install(&hub, &product::values()).await?;
        report.line("the chart is installed, its Pods are ready");
        hub.kubectl(&["create", "namespace", NAMESPACE], "").await?;
        hub.kubectl(&["label", "namespace", NAMESPACE, "pod-security.kubernetes.io/enforce=baseline"], "").await?;
        let healthy = product::serving(releases::best().serving);
        let (faulty, expected) = faulty(healthy.clone());
        apply(&hub, &faulty).await?;
        tells(&mut report, &hub, &expected.map(|(_, text)| text)).await?;
        apply(&hub, &healthy).await?;
        ready(&hub, SERVING, NAMESPACE).await?;
        report.line("without the faults, it is Ready");

        // A Pod that is killed for its memory, and a quota that leaves no room for another one.
        let mut small = healthy.clone();
        let memory = json!({"memory": "16Mi", "cpu": "50m"});
        small["workloads"] = json!([{"name": "controller", "resources": [{"container": "controller", "requests": memory, "limits": memory}]}]);
        let quota = json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "none", "namespace": NAMESPACE}, "spec": {"hard": {"pods": "0"}}});
        apply(&hub, &small).await?;
        hub.kubectl(&["delete", "pod", "-n", NAMESPACE, "-l", "app=controller"], "").await?;
        tells(&mut report, &hub, &["16Mi"]).await?;
        hub.kubectl(&["apply", "-f", "-"], &quota.to_string()).await?;
        hub.kubectl(&["delete", "pod", "-n", NAMESPACE, "-l", "app=activator"], "").await?;
        tells(&mut report, &hub, &["exceeded quota: none"]).await?;
        hub.kubectl(&["delete", "quota", "none", "-n", NAMESPACE], "").await?;

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
        invalid["registry"] = json!({"default": "registry.example/${NAME}:UPPER CASE"});
        apply(&hub, &invalid).await?;
        hub.kubectl(&["delete", "deployment", "--all", "-n", NAMESPACE, "--wait=false"], "").await?;
        tells(&mut report, &hub, &["invalid image name"]).await?;
        assert_eq!(message(&hub).await?.matches("invalid image name").count(), 1, "one cause stands there once");
        let (code, text, took) = wait(&hub).await?;
        report.line(&format!("knative-operator wait ended with {code:?} after {took:.1?}: {}", text.trim()));
        assert!(code != Some(0) && took < Duration::from_secs(30), "{text}");
        Ok(())
    });
}
