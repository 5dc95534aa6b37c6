//! The chart: what is generated is fresh, and bad values are told before anything is installed.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures)] // these are tests

use std::process::Command;

use knative_operator_shared::api::Component;
use knative_operator_shared::crd;
use knative_operator_tests::tools;
use serde_json::Value;

fn template(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new(tools::control_plane("helm").unwrap())
        .args(["template", "release", "--namespace", "knative-operator"])
        .arg(tools::project().join("charts/knative-operator"))
        .args(arguments)
        .output()
        .unwrap();
    if output.status.success() { Ok(String::from_utf8(output.stdout).unwrap()) } else { Err(String::from_utf8(output.stderr).unwrap()) }
}

fn objects(arguments: &[&str]) -> Vec<Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(&template(arguments).unwrap()).unwrap();
    all.into_iter().filter(|o| !o.is_null()).collect()
}

const PROVIDER: &str = r#"knative_operator.multicluster.accessProvidersConfig={"providers":[{"name":"p","execConfig":{"apiVersion":"client.authentication.k8s.io/v1","command":"/plugins/p/bin","provideClusterInfo":true}}]}"#;

fn multicluster<'a>(extra: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["--set", "knative_operator.multicluster.enabled=true", "--set-json", PROVIDER];
    arguments.extend(extra);
    arguments
}

#[test]
fn the_crds_are_fresh() {
    for component in Component::ALL {
        let file = tools::project().join(format!("charts/knative-operator/files/crds/{}.yaml", component.plural()));
        let stored: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        assert_eq!(stored, crd::definition(component), "the chart's CRD of {component} is stale: run `make generate`");
    }
}

#[test]
fn a_default_install_knows_no_spokes() {
    let objects = objects(&[]);
    let operator = objects.iter().find(|o| o["kind"] == "Deployment" && o["metadata"]["name"] == "knative-operator").unwrap();
    let container = &operator["spec"]["template"]["spec"]["containers"][0];
    let args: Vec<_> = container["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
    assert_eq!(
        args,
        [
            "--remote-deployments-poll-interval=10s",
            "--exec-timeout=10s",
            "--shards=1",
            "--max-concurrent-reconciles=32",
            "--releases=/var/run/ko",
            "--log-level=info"
        ]
    );
    assert!(container.get("volumeMounts").is_none() && operator["spec"]["template"]["spec"].get("volumes").is_none());
    assert!(!objects.iter().any(|o| o["metadata"]["name"] == "clusterprofile-provider-file"));
    let configurations: Vec<_> = objects.iter().filter(|o| o["kind"].as_str().unwrap().ends_with("WebhookConfiguration")).collect();
    assert_eq!(configurations.len(), 2);
    for webhook in configurations.iter().map(|c| &c["webhooks"][0]) {
        assert_eq!(webhook["failurePolicy"], "Fail");
        assert_eq!(webhook["rules"][0]["resources"], serde_json::json!(["knativeservings", "knativeeventings"]));
    }
}

#[test]
fn plugins_are_image_volumes_and_the_provider_file_a_config_map() {
    let plugins = r#"knative_operator.multicluster.plugins=[{"name":"p","image":"registry.example/p:v1","mountPath":"/plugins/./p/"}]"#;
    let objects = objects(&multicluster(&["--set-json", plugins]));
    let file = objects.iter().find(|o| o["metadata"]["name"] == "clusterprofile-provider-file").unwrap();
    let config: Value = serde_json::from_str(file["data"]["config.json"].as_str().unwrap()).unwrap();
    assert_eq!(config["providers"][0]["execConfig"]["command"], "/plugins/p/bin");
    let operator = objects.iter().find(|o| o["kind"] == "Deployment" && o["metadata"]["name"] == "knative-operator").unwrap();
    let pod = &operator["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["args"][0], "--clusterprofile-provider-file=/etc/cluster-inventory/config.json");
    assert_eq!(pod["containers"][0]["volumeMounts"][1], serde_json::json!({"name": "p", "mountPath": "/plugins/p", "readOnly": true}));
    assert_eq!(pod["volumes"][1], serde_json::json!({"name": "p", "image": {"reference": "registry.example/p:v1"}}));
}

#[test]
fn bad_values_are_told() {
    let plugin = |path: &str| format!(r#"knative_operator.multicluster.plugins=[{{"name":"p","image":"i","mountPath":"{path}"}}]"#);
    let (relative, elsewhere, root, clash) = (plugin("plugins"), plugin("/plugin"), plugin("/"), plugin("/etc/cluster-inventory"));
    for (arguments, expected) in [
        (vec!["--set", "knative_operator.multicluster.enabled=true"], "accessProvidersConfig is empty"),
        (multicluster(&[]), "is not under any plugins[].mountPath"),
        (multicluster(&["--set-json", &relative]), "must be an absolute path, got \"plugins\""),
        (multicluster(&["--set-json", &elsewhere]), "is not under any plugins[].mountPath"),
        (multicluster(&["--set-json", &root]), "is not under any plugins[].mountPath"),
        (multicluster(&["--set-json", &clash]), "must not be below /etc/cluster-inventory"),
        (vec!["--set", "knative_operator.operator_webhook.replicas=many"], "replicas"),
        (vec!["--set", "knative_operator.operator_webhook.certificates.source=secret"], "name the Secret that holds tls.crt"),
        (vec!["--set", "knative_operator.operator_webhook.certificates.source=vault"], "certificates"),
        (vec!["--set", "knative_operator.operator_webhook.drainDelay=long"], "drainDelay"),
        (vec!["--set", "knative_operator.multicluster.remoteDeploymentsPollInterval=soon"], "remoteDeploymentsPollInterval"),
        (vec!["--set", "knativeOperator.multicluster.enabled=true"], "knativeOperator"),
    ] {
        let error = template(&arguments).unwrap_err();
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

#[test]
fn extra_objects_are_rendered() {
    let extra = r#"extraObjects=[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x-{{ .Release.Name }}"}}]"#;
    assert!(objects(&["--set-json", extra]).iter().any(|o| o["metadata"]["name"] == "x-release"));
}
