//! The chart: generated files are up to date, and invalid values are refused.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures)] // these are tests

#[path = "chart/live.rs"]
mod live;
#[path = "chart/metadata.rs"]
mod metadata;
#[path = "chart/toggles.rs"]
mod toggles;
#[path = "chart/values.rs"]
mod values;
#[path = "chart/webhook.rs"]
mod webhook;

use std::process::Command;

use knative_operator_shared::api::Component;
use knative_operator_shared::crd;
use knative_operator_shared::label::{FLEET_ANNOTATIONS, FLEET_LABELS};
use knative_operator_tests::{go_operator, tools};
use serde_json::{Value, json};

/// `helm template` with `arguments`.
fn helm(arguments: &[&str]) -> Command {
    let mut command = Command::new(tools::control_plane("helm").unwrap());
    command.args(["template", "release", "--namespace", "knative-operator"]).args(tools::OFFLINE);
    command.arg(tools::project().join("charts/knative-operator")).args(arguments);
    command
}

/// What `helm` prints.
fn output(helm: &mut Command) -> Result<String, String> {
    let output = helm.output().unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8(output.stderr).unwrap())
    }
}

fn template(arguments: &[&str]) -> Result<String, String> {
    output(&mut helm(arguments))
}

fn objects(arguments: &[&str]) -> Vec<Value> {
    parsed(&template(arguments).unwrap())
}

fn parsed(manifest: &str) -> Vec<Value> {
    let all: Vec<Value> = serde_saphyr::from_multiple(manifest).unwrap();
    all.into_iter().filter(|o| !o.is_null()).collect()
}

const PROVIDER: &str = r#"knative_operator.multicluster.accessProvidersConfig={"providers":[{"name":"p","execConfig":{"apiVersion":"client.authentication.k8s.io/v1","command":"/plugins/p/bin","provideClusterInfo":true}}]}"#;

fn multicluster<'a>(extra: &[&'a str]) -> Vec<&'a str> {
    let mut arguments = vec!["--set", "knative_operator.multicluster.enabled=true", "--set-json", PROVIDER];
    arguments.extend(extra);
    arguments
}

#[test]
fn crds_are_up_to_date() {
    for component in Component::ALL {
        let file = tools::project().join(format!("charts/knative-operator/files/crds/{}.yaml", component.plural()));
        let stored: Value = serde_saphyr::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        assert_eq!(stored, crd::definition(component), "the chart's CRD of {component} is stale: run `make generate`");
    }
}

#[test]
fn default_values_disable_multicluster() {
    let objects = objects(&[]);
    let operator =
        objects.iter().find(|o| o["kind"] == "Deployment" && o["metadata"]["name"] == "knative-operator").unwrap();
    let container = &operator["spec"]["template"]["spec"]["containers"][0];
    let args: Vec<_> = container["args"].as_array().unwrap().iter().map(|a| a.as_str().unwrap()).collect();
    assert_eq!(
        args,
        [
            "--remote-deployments-poll-interval=10s",
            "--exec-timeout=10s",
            "--enforce-authorization",
            "--shards=1",
            "--max-concurrent-reconciles=32",
            "--releases=/var/run/ko",
            "--log-level=info"
        ]
    );
    assert!(container.get("volumeMounts").is_none() && operator["spec"]["template"]["spec"].get("volumes").is_none());
    assert!(!objects.iter().any(|o| o["metadata"]["name"] == "clusterprofile-provider-file"));
    let configurations: Vec<_> =
        objects.iter().filter(|o| o["kind"].as_str().unwrap().ends_with("WebhookConfiguration")).collect();
    assert_eq!(configurations.len(), 2);
    for webhook in configurations.iter().map(|c| &c["webhooks"][0]) {
        assert_eq!(webhook["failurePolicy"], "Fail");
        assert_eq!(webhook["rules"][0]["resources"], json!(["knativeservings", "knativeeventings"]));
    }
}

#[test]
fn state_of_rollouts_is_validated_without_a_change_of_the_spec() {
    let objects = objects(&[]);
    let expression = |kind: &str| {
        let configuration = objects.iter().find(|o| o["kind"] == format!("{kind}WebhookConfiguration")).unwrap();
        configuration["webhooks"][0]["matchConditions"][0]["expression"].as_str().unwrap().to_owned()
    };
    let (validating, mutating) = (expression("Validating"), expression("Mutating"));
    for name in FLEET_ANNOTATIONS.into_iter().chain(FLEET_LABELS) {
        assert!(validating.contains(&format!("'{name}'")) && !mutating.contains(name), "{name}: {validating}");
    }
    for part in ["?ownerReferences", "?finalizers.orValue([]) !=", "protected'].orValue('') !=", ".sum() >"] {
        assert!(validating.contains(part) && !mutating.contains(part), "{part}: {validating}");
    }
    for expression in [validating, mutating] {
        let count = |bracket: char| expression.matches(bracket).count();
        assert_eq!((count('('), count('[')), (count(')'), count(']')), "{expression}");
        assert!(!expression.contains(['{', '}', '\n']), "{expression}");
    }
}

#[test]
fn plugins_are_image_volumes_and_provider_file_is_config_map() {
    let plugins = r#"knative_operator.multicluster.plugins=[{"name":"p","image":"registry.example/p:v1","mountPath":"/plugins/./p/"}]"#;
    let objects = objects(&multicluster(&["--set-json", plugins]));
    let file = objects.iter().find(|o| o["metadata"]["name"] == "clusterprofile-provider-file").unwrap();
    let config: Value = serde_json::from_str(file["data"]["config.json"].as_str().unwrap()).unwrap();
    assert_eq!(config["providers"][0]["execConfig"]["command"], "/plugins/p/bin");
    let operator =
        objects.iter().find(|o| o["kind"] == "Deployment" && o["metadata"]["name"] == "knative-operator").unwrap();
    let pod = &operator["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["args"][0], "--clusterprofile-provider-file=/etc/cluster-inventory/config.json");
    assert_eq!(
        pod["containers"][0]["volumeMounts"][1],
        json!({"name": "p", "mountPath": "/plugins/p", "readOnly": true})
    );
    assert_eq!(pod["volumes"][1], json!({"name": "p", "image": {"reference": "registry.example/p:v1"}}));
}

#[test]
fn client_authorities_are_a_volume_of_the_webhook() {
    let webhook = |arguments: &[&str]| {
        let all = objects(arguments);
        let found = all.into_iter().find(|o| o["kind"] == "Deployment" && o["metadata"]["name"] == "operator-webhook");
        found.unwrap()["spec"]["template"]["spec"].clone()
    };
    let pod = webhook(&["--set", "knative_operator.operator_webhook.clientCAConfigMap=clients"]);
    let container = &pod["containers"][0];
    assert!(container["args"].as_array().unwrap().contains(&json!("--client-ca-file=/etc/client-ca/ca.crt")));
    assert_eq!(
        container["volumeMounts"],
        json!([{"name": "client-ca", "mountPath": "/etc/client-ca", "readOnly": true}])
    );
    assert_eq!(pod["volumes"], json!([{"name": "client-ca", "configMap": {"name": "clients"}}]));
    let pod = webhook(&[]);
    assert!(pod.get("volumes").is_none() && pod["containers"][0].get("volumeMounts").is_none());
}

#[test]
fn commands_in_the_pod_are_restricted_as_the_operator_is() {
    let objects = objects(&[
        "--set",
        "knative_operator.multicluster.requireBoundSecrets=true,knative_operator.multicluster.allowHttpServers=true",
        "--set-json",
        r#"knative_operator.multicluster.profileNamespaces=["fleet-system","edge"],knative_operator.manifests.allowedHosts=["a.example","10.0.0.0/8"]"#,
    ]);
    let operator =
        objects.iter().find(|o| o["kind"] == "Deployment" && o["metadata"]["name"] == "knative-operator").unwrap();
    let env = operator["spec"]["template"]["spec"]["containers"][0]["env"].as_array().unwrap();
    for (name, value) in [
        ("PROFILE_NAMESPACES", "fleet-system,edge"),
        ("REQUIRE_BOUND_SECRETS", "true"),
        ("ALLOW_HTTP_SERVERS", "true"),
        ("ALLOWED_MANIFEST_HOSTS", "a.example,10.0.0.0/8"),
    ] {
        assert!(env.iter().any(|one| one["name"] == name && one["value"] == value), "{name}: {env:?}");
    }
}

#[test]
fn invalid_values_are_refused() {
    let plugin = |path: &str| {
        format!(r#"knative_operator.multicluster.plugins=[{{"name":"p","image":"i","mountPath":"{path}"}}]"#)
    };
    let (relative, elsewhere, root, clash) =
        (plugin("plugins"), plugin("/plugin"), plugin("/"), plugin("/etc/cluster-inventory"));
    for (arguments, expected) in [
        (vec!["--set", "knative_operator.multicluster.enabled=true"], "accessProvidersConfig is empty"),
        (vec!["--set", "knative_operator.fleet.enabled=true"], "multicluster.enabled is false"),
        (vec!["--set", "metrics.debug=true"], "metrics.secure is false"),
        (multicluster(&[]), "is not under any plugins[].mountPath"),
        (multicluster(&["--set-json", &relative]), "must be an absolute path, got \"plugins\""),
        (multicluster(&["--set-json", &elsewhere]), "extraVolumeMounts[].mountPath (/plugin); mount the program"),
        (multicluster(&["--set-json", &root]), "is not under any plugins[].mountPath"),
        (multicluster(&["--set-json", &clash]), "must not be below /etc/cluster-inventory"),
        (vec!["--set", "knative_operator.operator_webhook.replicas=many"], "replicas"),
        (
            vec!["--set", "knative_operator.operator_webhook.certificates.source=secret"],
            "name the Secret that holds tls.crt",
        ),
        (vec!["--set", "knative_operator.operator_webhook.certificates.source=vault"], "certificates"),
        (vec!["--set", "knative_operator.operator_webhook.drainDelay=long"], "drainDelay"),
        (vec!["--set", "knative_operator.operator_webhook.port=0"], "port"),
        (vec!["--set", "knative_operator.operator_webhook.metricsPort=70000"], "metricsPort"),
        (vec!["--set", "knative_operator.operator_webhook.healthPort=health"], "healthPort"),
        (vec!["--set", "knative_operator.operator_webhook.hostNetwork=maybe"], "hostNetwork"),
        (vec!["--set", "priorityClassQuota.enabled=maybe"], "priorityClassQuota"),
        (vec!["--set", "priorityClassQuota.pods=3"], "priorityClassQuota"),
        (
            vec!["--set", "knative_operator.multicluster.remoteDeploymentsPollInterval=soon"],
            "remoteDeploymentsPollInterval",
        ),
        (vec!["--set-json", r#"knative_operator.multicluster.profileNamespaces=["*"]"#], "profileNamespaces"),
        (vec!["--set", "knativeOperator.multicluster.enabled=true"], "knativeOperator"),
    ] {
        let error = template(&arguments).unwrap_err();
        assert!(error.contains(expected), "{arguments:?}: {error}");
    }
}

/// Values that users give to the Go operator's chart, as its documentation shows.
const MULTICLUSTER: &str = "
knative_operator:
  multicluster:
    enabled: true
    accessProvidersConfig:
      providers:
        - name: secretreader
          execConfig:
            apiVersion: client.authentication.k8s.io/v1
            command: /access-plugins/secretreader/bin/secretreader-plugin
            interactiveMode: Never
            provideClusterInfo: true
    plugins:
      - name: secretreader
        image: registry.k8s.io/cluster-inventory-api/secretreader:v0.1.3
        mountPath: /access-plugins/secretreader
    remoteDeploymentsPollInterval: 30s
";

/// `helm template` with `text` as values file.
fn with_values(text: &str) -> Result<String, String> {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), text).unwrap();
    template(&["-f", file.path().to_str().unwrap()])
}

/// `text` without the lines that the chart asks to remove.
fn without_refused_lines(text: &str) -> String {
    let error = with_values(text).unwrap_err();
    let refused: Vec<&str> = error
        .lines()
        .filter_map(|line| line.trim().split_once(": "))
        .filter(|(path, _)| path.starts_with("knative_operator."))
        .map(|(_, v)| v)
        .collect();
    assert_eq!(refused.len(), 4, "{error}");
    let keep = |line: &&str| {
        !refused.iter().any(|value| line.trim() == format!("image: {value}") || line.trim() == format!("tag: {value}"))
    };
    text.lines().filter(keep).collect::<Vec<_>>().join("\n")
}

#[test]
fn go_operator_images_are_refused() {
    let values = go_operator::default_values().unwrap();
    let error = with_values(&values).unwrap_err();
    for line in [
        "knative_operator.knative_operator.image: gcr.io/knative-releases/knative.dev/operator/cmd/operator",
        "knative_operator.knative_operator.tag: v1.23.0",
        "knative_operator.operator_webhook.image: gcr.io/knative-releases/knative.dev/operator/cmd/webhook",
        "knative_operator.operator_webhook.tag: v1.23.0",
        "--reset-then-reuse-values",
    ] {
        assert!(error.contains(line), "{line} is missing in: {error}");
    }
    let mirror = "knative_operator.knative_operator.image=mirror.example:5000/knative-releases/knative.dev/operator/cmd/operator";
    assert!(template(&["--set", mirror]).unwrap_err().contains("mirror.example:5000"));
    let digest = "knative_operator.operator_webhook.image=mirror.example/x/operator/cmd/webhook@sha256:0123";
    assert!(template(&["--set", digest]).unwrap_err().contains("mirror.example/x"));
    // A mirror of this chart's images may use any tag.
    template(&[
        "--set",
        "knative_operator.knative_operator.image=mirror.example/knative-operator,knative_operator.knative_operator.tag=v1.23.0",
    ])
    .unwrap();
}

#[test]
fn go_operator_values_have_same_effect() {
    let defaults = go_operator::default_values().unwrap();
    for text in [without_refused_lines(&defaults), MULTICLUSTER.to_owned()] {
        let values: Value = serde_saphyr::from_str(&text).unwrap();
        check_settings(&values);
        check_settings(&changed(values));
    }
}

/// `values` with every setting changed, so that none has its default.
fn changed(mut values: Value) -> Value {
    let ko = &mut values["knative_operator"];
    ko["multicluster"]["enabled"] = json!(true);
    ko["multicluster"]["remoteDeploymentsPollInterval"] = json!("45s");
    ko["multicluster"]["accessProvidersConfig"] = json!({"providers": [{"name": "a<b", "execConfig": {
        "apiVersion": "client.authentication.k8s.io/v1", "command": "/access/a/bin", "interactiveMode": "Never", "provideClusterInfo": true}}]});
    ko["multicluster"]["plugins"] =
        json!([{"name": "a", "image": "registry.example/a:v1", "mountPath": "/access/./a/"}]);
    ko["kubernetes_min_version"] = json!("v1.30.0");
    for (part, more) in [("knative_operator", 1), ("operator_webhook", 2)] {
        // In both charts, Helm merges mappings into the defaults and replaces lists.
        ko[part]["affinity"] = json!({"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
            {"weight": more, "podAffinityTerm": {"topologyKey": "rack", "labelSelector": {"matchLabels": {"app": "x"}}}}]}});
        ko[part]["tolerations"] = json!([{"key": format!("t{more}"), "operator": "Exists"}]);
        ko[part]["containerSecurityContext"] =
            json!({"allowPrivilegeEscalation": true, "readOnlyRootFilesystem": false, "runAsNonRoot": false});
        ko[part]["resources"] = json!({"requests": {"cpu": format!("{more}1m"), "memory": format!("{more}2Mi")}, "limits": {"cpu": format!("{more}3m"), "memory": format!("{more}4Mi")}});
    }
    values["extraObjects"] = json!([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "extra"}}]);
    values
}

/// Checks that each setting in `values` is where the Go operator's chart has it.
fn check_settings(values: &Value) {
    let objects = parsed(&with_values(&values.to_string()).unwrap());
    let find = |kind: &str, name: &str| objects.iter().find(|o| o["kind"] == kind && o["metadata"]["name"] == name);
    let deployment = |name: &str| find("Deployment", name).unwrap()["spec"]["template"]["spec"].clone();
    let (operator, webhook) = (deployment("knative-operator"), deployment("operator-webhook"));
    let has =
        |pod: &Value, argument: &str| pod["containers"][0]["args"].as_array().unwrap().iter().any(|a| a == argument);
    let mut checked = 0;
    for (path, value) in leaves(values) {
        let (part, setting) =
            path.strip_prefix("knative_operator.").and_then(|p| p.split_once('.')).unwrap_or(("", &path));
        let pod = if part == "operator_webhook" { &webhook } else { &operator };
        match setting {
            "enabled" => {
                assert_eq!(json!(has(pod, "--clusterprofile-provider-file=/etc/cluster-inventory/config.json")), value);
            }
            "accessProvidersConfig" => {
                let file = find("ConfigMap", "clusterprofile-provider-file")
                    .map(|c| c["data"]["config.json"].as_str().unwrap());
                assert_eq!(file.map_or(json!({}), |file| serde_json::from_str(file).unwrap()), value);
            }
            "plugins" => {
                for plugin in value.as_array().unwrap() {
                    let volume = json!({"name": plugin["name"], "image": {"reference": plugin["image"]}});
                    assert!(pod["volumes"].as_array().unwrap().contains(&volume), "{volume}");
                    let folder = plugin["mountPath"].as_str().unwrap().replace("/./", "/");
                    let mount =
                        json!({"name": plugin["name"], "mountPath": folder.trim_end_matches('/'), "readOnly": true});
                    assert!(pod["containers"][0]["volumeMounts"].as_array().unwrap().contains(&mount), "{mount}");
                }
            }
            "remoteDeploymentsPollInterval" => {
                assert!(has(pod, &format!("--remote-deployments-poll-interval={}", value.as_str().unwrap())));
            }
            "affinity" | "tolerations" => {
                let empty = value.as_object().is_some_and(serde_json::Map::is_empty)
                    || value.as_array().is_some_and(Vec::is_empty);
                assert_eq!(pod[setting], if empty { Value::Null } else { value }, "{path}");
            }
            "containerSecurityContext" => {
                for (name, wanted) in value.as_object().unwrap() {
                    assert_eq!(&pod["containers"][0]["securityContext"][name], wanted, "{path}.{name}");
                }
            }
            "resources" => assert_eq!(pod["containers"][0]["resources"], value, "{path}"),
            "knative_operator.kubernetes_min_version" => {
                let variable = json!({"name": "KUBERNETES_MIN_VERSION", "value": value});
                assert!(operator["containers"][0]["env"].as_array().unwrap().contains(&variable), "{variable}");
            }
            "extraObjects" => assert!(value.as_array().unwrap().iter().all(|extra| objects.contains(extra)), "{value}"),
            other => panic!("nothing checks {other} ({path})"),
        }
        checked += 1;
    }
    assert!(checked >= 4, "only {checked} settings");
}

/// The settings in `values`, by their paths.
fn leaves(values: &Value) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    for (key, value) in values.as_object().unwrap() {
        let parts =
            matches!(key.as_str(), "knative_operator" | "multicluster" | "operator_webhook") && value.is_object();
        let inner = if parts { leaves(value) } else { vec![(String::new(), value.clone())] };
        all.extend(
            inner.into_iter().map(|(path, v)| (if path.is_empty() { key.clone() } else { format!("{key}.{path}") }, v)),
        );
    }
    all
}

#[test]
fn extra_objects_are_rendered() {
    let extra = r#"extraObjects=[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x-{{ .Release.Name }}"}}]"#;
    assert!(objects(&["--set-json", extra]).iter().any(|o| o["metadata"]["name"] == "x-release"));
}
