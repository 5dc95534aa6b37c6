//! The values: settings of Pods, labels, and the schema, which describes each value, and has those
//! that documents name.

use std::collections::BTreeSet;
use std::fs;
use std::process::Command;

use knative_operator_tests::tools;
use serde_json::{Value, json};

use super::{metadata, objects, output, parsed, with_values};

/// The Deployments and ServiceAccounts.
const NAMES: [&str; 2] = ["knative-operator", "operator-webhook"];

/// The objects with `values` for both parts.
fn both(values: &Value) -> Vec<Value> {
    let values = json!({"knative_operator": {"knative_operator": values, "operator_webhook": values}});
    parsed(&with_values(&values.to_string()).unwrap())
}

fn find<'a>(all: &'a [Value], kind: &str, name: &str) -> &'a Value {
    all.iter().find(|o| o["kind"] == kind && o["metadata"]["name"] == name).unwrap()
}

/// Whether `all` has `one`, or the entries of `one`.
fn has(all: &Value, one: &Value) -> bool {
    match (all, one) {
        (Value::Object(all), Value::Object(one)) => one.iter().all(|(key, value)| all.get(key) == Some(value)),
        (Value::Array(all), Value::Array(one)) => one.iter().all(|item| all.contains(item)),
        _ => all == one,
    }
}

#[test]
fn settings_of_pods_are_rendered() {
    for (name, value, path) in [
        ("podLabels", json!({"team": "a", "on": "true"}), "/metadata/labels"),
        ("extraArgs", json!(["--one=1"]), "/spec/containers/0/args"),
        ("env", json!([{"name": "A", "value": "b"}]), "/spec/containers/0/env"),
        ("extraVolumes", json!([{"name": "v", "emptyDir": {}}]), "/spec/volumes"),
        ("extraVolumeMounts", json!([{"name": "v", "mountPath": "/v"}]), "/spec/containers/0/volumeMounts"),
        ("initContainers", json!([{"name": "i", "image": "i"}]), "/spec/initContainers"),
        ("imagePullPolicy", json!("Always"), "/spec/containers/0/imagePullPolicy"),
    ] {
        let all = both(&json!({name: value}));
        for deployment in NAMES {
            let template = &find(&all, "Deployment", deployment)["spec"]["template"];
            let found = template.pointer(path).unwrap_or(&Value::Null);
            assert!(has(found, &value), "{deployment}, {name}: {found}");
        }
    }
    let all = both(&json!({"serviceAccount": {"annotations": {"a": "b"}, "labels": {"team": "a"}}}));
    for account in NAMES {
        let metadata = &find(&all, "ServiceAccount", account)["metadata"];
        assert_eq!((&metadata["annotations"], &metadata["labels"]["team"]), (&json!({"a": "b"}), &json!("a")));
    }
}

/// Values that `--reuse-values` keeps from an older release don't have them.
#[test]
fn new_values_may_be_missing() {
    let names = ["podLabels", "serviceAccount", "extraArgs", "extraVolumes", "extraVolumeMounts", "initContainers"];
    let missing: Value =
        names.into_iter().chain(["imagePullPolicy"]).map(|name| (name.to_owned(), Value::Null)).collect();
    let parts = json!({"knative_operator": missing, "operator_webhook": missing});
    let values = json!({"commonLabels": null, "knative_operator": parts});
    assert_eq!(parsed(&with_values(&values.to_string()).unwrap()), objects(&[]));
}

#[test]
fn common_labels_are_on_every_object_and_replace_none() {
    let labels = json!({"team": "a"});
    let values = json!({"commonLabels": labels, "networkPolicy": {"enabled": true},
        "metrics": {"secure": true, "serviceMonitor": {"enabled": true}, "prometheusRule": {"enabled": true, "labels": {"team": "b"}}, "dashboard": {"enabled": true}},
        "knative_operator": {"fleet": {"enabled": true}, "multicluster": {"enabled": true, "accessProvidersConfig": {"providers": [{"name": "p", "builtin": "secretreader"}]}},
            "knative_operator": {"podLabels": {"team": "c"}}, "operator_webhook": {"certificates": {"source": "cert-manager"}}}});
    let all = parsed(&with_values(&values.to_string()).unwrap());
    for object in &all {
        // An object's own labels precede.
        let wanted = if object["kind"] == "PrometheusRule" { "b" } else { "a" };
        assert_eq!(object["metadata"]["labels"]["team"], wanted, "{}", object["metadata"]);
    }
    for (deployment, team) in [("knative-operator", "c"), ("operator-webhook", "a")] {
        let spec = &find(&all, "Deployment", deployment)["spec"];
        let labels = &spec["template"]["metadata"]["labels"];
        assert_eq!(labels["team"], team);
        assert!(has(labels, &spec["selector"]["matchLabels"]), "{labels}");
        assert!(spec["selector"]["matchLabels"].get("team").is_none());
    }
}

#[test]
fn labels_of_selectors_cannot_be_replaced() {
    let of = |part: &str, name: &str| json!({"knative_operator": {part: {name: {"role": "x"}}}});
    let account = json!({"knative_operator": {"operator_webhook": {"serviceAccount": {"labels": {"role": "x"}}}}});
    for (values, path) in [
        (json!({"commonLabels": {"role": "x"}}), "commonLabels"),
        (of("knative_operator", "podLabels"), "knative_operator.knative_operator.podLabels"),
        (of("operator_webhook", "podLabels"), "knative_operator.operator_webhook.podLabels"),
        (account, "knative_operator.operator_webhook.serviceAccount.labels"),
    ] {
        let error = with_values(&values.to_string()).unwrap_err();
        assert!(error.contains(&format!("{path} has the label role, which the chart sets itself")), "{error}");
    }
    // Each label that the chart sets.
    let all = objects(&["--set", "rbac.aggregateClusterRoles=true"]);
    let pods = all.iter().map(|object| &object["spec"]["template"]["metadata"]["labels"]);
    let labels = all.iter().map(|object| &object["metadata"]["labels"]).chain(pods).filter_map(Value::as_object);
    for name in labels.flat_map(serde_json::Map::keys).collect::<BTreeSet<_>>() {
        let error = with_values(&json!({"commonLabels": {name: "x"}}).to_string()).unwrap_err();
        assert!(error.contains(&format!("commonLabels has the label {name}, ")), "{error}");
    }
}

#[test]
fn images_are_by_digest_or_by_tag_or_those_of_the_release() {
    // The chart of a release, as tests/package/release.sh makes it.
    let [own, operator, webhook] = ["0", "1", "2"].map(|digit| format!("sha256:{}", digit.repeat(64)));
    let released = metadata::copy();
    let digests = json!({"knative_operator": operator, "operator_webhook": webhook}).to_string();
    let digest = own.clone();
    fs::write(released.path().join("files/digests.json"), digests).unwrap();
    let chart = tools::project().join("charts/knative-operator");
    let [cloned, released] = [chart.as_path(), released.path()];
    let version = concat!("r/i:", env!("CARGO_PKG_VERSION")).to_owned();
    let [own, operator, webhook] = [own, operator, webhook].map(|digest| format!("r/i@{digest}"));
    let tag = "r/i:v1".to_owned();
    for (chart, values, images) in [
        (cloned, json!({}), [&version, &version]),
        (cloned, json!({"tag": "v1"}), [&tag, &tag]),
        (cloned, json!({"digest": digest}), [&own, &own]),
        (cloned, json!({"digest": digest, "tag": "v1"}), [&own, &own]),
        (released, json!({}), [&operator, &webhook]),
        (released, json!({"tag": "v1"}), [&tag, &tag]),
        (released, json!({"digest": digest, "tag": "v1"}), [&own, &own]),
    ] {
        let mut part = values.clone();
        part["image"] = json!("r/i");
        let file = tempfile::NamedTempFile::new().unwrap();
        let all = json!({"knative_operator": {"knative_operator": part, "operator_webhook": part}});
        fs::write(file.path(), all.to_string()).unwrap();
        let mut helm = Command::new(tools::control_plane("helm").unwrap());
        helm.args(["template", "release"]).args(tools::OFFLINE).arg(chart).arg("-f").arg(file.path());
        let all = parsed(&output(&mut helm).unwrap());
        let image = |kind: &str, name: &str, pod: &str| {
            find(&all, kind, name).pointer(&format!("{pod}/containers/0/image")).unwrap().as_str().unwrap().to_owned()
        };
        let found = NAMES.map(|name| image("Deployment", name, "/spec/template/spec"));
        assert_eq!(found.each_ref(), images, "{}: {values}", chart.display());
        assert_eq!(image("Pod", "knative-operator-test", "/spec"), *images[0], "{}: {values}", chart.display());
    }
}

#[test]
fn schema_refuses_what_has_no_effect() {
    for (part, name, value) in [
        ("knative_operator", "drainDelay", json!("5s")),
        ("knative_operator", "certificates", json!({})),
        ("operator_webhook", "maxConcurrentReconciles", json!(1)),
        ("operator_webhook", "tolerations", json!([{"efect": "NoSchedule"}])),
        ("operator_webhook", "tolerations", json!([{"effect": "NoRun"}])),
        ("knative_operator", "affinity", json!({"nodeAffinty": {}})),
        ("knative_operator", "resources", json!({"limit": {"cpu": 1}})),
        ("knative_operator", "resources", json!({"limits": {"cpu": [1]}})),
        ("knative_operator", "imagePullPolicy", json!("Sometimes")),
        ("knative_operator", "podLabels", json!({"a": true})),
        ("knative_operator", "extraArgs", json!("--a")),
        ("knative_operator", "serviceAccount", json!({"name": "a"})),
    ] {
        let error = with_values(&json!({"knative_operator": {part: {name: value}}}).to_string()).unwrap_err();
        assert!(error.contains(name), "{part}.{name}={value}: {error}");
    }
    for version in ["foo", "v1.34", "1"] {
        let values = json!({"knative_operator": {"kubernetes_min_version": version}});
        let error = with_values(&values.to_string()).unwrap_err();
        assert!(error.contains("kubernetes_min_version"), "{version}: {error}");
    }
    let accepted = json!({
        "tolerations": [{"key": "a", "operator": "Equal", "value": "b", "effect": "NoExecute", "tolerationSeconds": 1}, {"operator": "Exists"}],
        "affinity": {"nodeAffinity": {}, "podAffinity": null},
        "resources": {"limits": {"cpu": 1, "memory": "1Gi"}, "requests": null},
    });
    both(&accepted);
}

/// Checks that the properties in `schema` have descriptions.
fn check_descriptions(schema: &Value, path: &str) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        assert!(property["description"].as_str().is_some_and(|text| !text.is_empty()), "{path}.{name}: no description");
    }
    for (name, nested) in schema.as_object().into_iter().flatten() {
        check_descriptions(nested, &format!("{path}.{name}"));
    }
}

/// Checks that `schema` has the keys of `values`, and no others. Mappings that are empty, and those
/// without properties, may have any.
fn check_keys(schema: &Value, values: &Value, path: &str) {
    let (Some(properties), Some(values)) = (schema["properties"].as_object(), values.as_object()) else { return };
    if values.is_empty() {
        return;
    }
    // Helm gives `global` to subcharts.
    let known: BTreeSet<_> = properties.keys().filter(|key| *key != "global").collect();
    assert_eq!(known, values.keys().collect::<BTreeSet<_>>(), "{path}");
    for (name, value) in values {
        check_keys(&properties[name], value, &format!("{path}.{name}"));
    }
}

#[test]
fn schema_has_each_value_with_a_description() {
    let read =
        |name: &str| std::fs::read_to_string(tools::project().join("charts/knative-operator").join(name)).unwrap();
    let schema: Value = serde_json::from_str(&read("values.schema.json")).unwrap();
    check_descriptions(&schema, "");
    check_keys(&schema, &serde_saphyr::from_str(&read("values.yaml")).unwrap(), "");
}

/// A document with values of other charts.
const OF_OTHER_CHARTS: &str = "docs/operate/open-cluster-management.md";

/// Whether `schema`, a part of `root`, has a value at `path`. Mappings without properties may have
/// any.
fn has_value(root: &Value, schema: &Value, path: &[&str]) -> bool {
    if let Some(reference) = schema["$ref"].as_str().and_then(|reference| reference.strip_prefix('#')) {
        return root.pointer(reference).is_some_and(|schema| has_value(root, schema, path));
    }
    let (Some(properties), Some((first, rest))) = (schema["properties"].as_object(), path.split_first()) else {
        return true;
    };
    properties.get(*first).is_some_and(|schema| has_value(root, schema, rest))
}

/// The paths of values that `line` of a document names: after `--set`, and in code.
fn named(line: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for kind in ["--set ", "--set-string ", "--set-json ", "--set="] {
        for given in line.split(kind).skip(1) {
            let given = given.trim_start_matches(['\'', '"']);
            let assignments = given.split_whitespace().next().unwrap_or_default().split(',');
            paths.extend(assignments.filter_map(|one| Some(one.split_once('=')?.0.to_owned())));
        }
    }
    let is_letter = |letter: char| letter.is_ascii_alphanumeric() || "_.[]".contains(letter);
    for code in line.split('`').skip(1).step_by(2) {
        let path = code.split(|letter: char| !is_letter(letter)).next().unwrap_or_default().trim_end_matches('.');
        paths.extend(path.starts_with("knative_operator.").then(|| path.to_owned()));
    }
    paths
}

#[test]
fn documents_name_values_that_the_schema_has() {
    let root = tools::project();
    let schema = std::fs::read_to_string(root.join("charts/knative-operator/values.schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    let mut files = vec![root.join("README.md"), root.join("SECURITY.md"), root.join("CONTRIBUTING.md")];
    for folder in ["user", "operate", "develop"] {
        let all = std::fs::read_dir(root.join("docs").join(folder)).unwrap();
        files.extend(all.map(|entry| entry.unwrap().path()).filter(|path| path.extension().is_some_and(|e| e == "md")));
    }
    let (mut count, mut wrong) = (0, Vec::new());
    for file in files.iter().filter(|file| !file.ends_with(OF_OTHER_CHARTS)) {
        for (number, line) in std::fs::read_to_string(file).unwrap().lines().enumerate() {
            // The values of an earlier version, without the defaults of the new one.
            let reuses = line.contains(" --reuse-values") && !line.contains("Don't use");
            wrong.extend(reuses.then(|| format!("{}:{}: --reuse-values", file.display(), number + 1)));
            for path in named(line) {
                count += 1;
                let bare = path.replace("[0]", "").replace("[]", "");
                let keys: Vec<&str> = bare.split('.').collect();
                let exists = has_value(&schema, &schema, &keys);
                wrong.extend((!exists).then(|| format!("{}:{}: {path}", file.display(), number + 1)));
            }
        }
    }
    assert_eq!(wrong, Vec::<String>::new());
    assert!(count > 50, "{count} paths");
    // What was in documents once.
    for path in ["multicluster.enabled", "knative_operator.replicas", "knative_operator.extraArgs"] {
        let keys: Vec<&str> = path.split('.').collect();
        assert!(!has_value(&schema, &schema, &keys), "{path}");
    }
}
