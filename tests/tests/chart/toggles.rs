//! Each toggle of the values alone, and each pair of toggles together and apart, is valid YAML.
//! `e2e helm` tries some of them on an API server.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::process::Command;

use knative_operator_tests::tools;
use serde_json::{Value, json};

use super::{metadata, output};

/// Values of the optional features, by their names: what is empty in `values.yaml`.
fn sample(name: &str) -> Value {
    match name {
        "hubName" | "clientCAConfigMap" | "secretName" | "tag" => json!("x"),
        "priorityClassName" => json!("system-node-critical"),
        "digest" => json!(format!("sha256:{}", "0".repeat(64))),
        "image" => json!("registry.example/r:1"),
        "endpoint" => json!("http://collector"),
        "allowedHosts" | "profileNamespaces" => json!(["x"]),
        "extraArgs" => json!(["--x"]),
        "annotations" | "podAnnotations" | "podLabels" | "labels" | "commonLabels" | "nodeSelector" => {
            json!({"x": "true"})
        }
        "plugins" => json!([{"name": "p", "image": "i", "mountPath": "/p"}]),
        "affinity" => json!({"nodeAffinity": {}}),
        "tolerations" => json!([{"operator": "Exists"}]),
        "topologySpreadConstraints" => json!([{"maxSkew": 1}]),
        "securityContext" => json!({"fsGroup": 1}),
        "imagePullSecrets" | "env" | "extraVolumes" | "initContainers" | "issuerRef" | "extraVolumeMounts" => {
            let item = json!({"name": "x"});
            if name == "issuerRef" { item } else { json!([item]) }
        }
        "apiServer" | "metrics" => json!([{"podSelector": {}}]),
        "extraObjects" => json!([{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}]),
        other => panic!("no sample of {other}"),
    }
}

/// The toggles in `values`, which are at `path`: booleans and optional features.
fn toggles(values: &Value, path: &str, all: &mut Vec<(String, Value)>) {
    for (name, value) in values.as_object().into_iter().flatten() {
        let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match value {
            // Always there: multi-cluster support needs it.
            _ if name == "accessProvidersConfig" => {}
            Value::Bool(on) => all.push((path, json!(!on))),
            Value::Object(fields) if !fields.is_empty() => toggles(value, &path, all),
            _ if [json!([]), json!({}), json!("")].contains(value) => all.push((path, sample(name))),
            _ => {}
        }
    }
}

/// Values with these toggles.
fn values<'a>(toggles: impl Iterator<Item = &'a (String, Value)>) -> Value {
    let providers = json!([{"name": "p", "builtin": "secretreader"}]);
    let mut values = json!({"knative_operator": {"multicluster": {"accessProvidersConfig": {"providers": providers}}}});
    for (path, value) in toggles {
        *path.split('.').fold(&mut values, |at, name| &mut at[name]) = value.clone();
    }
    // Fleets need it.
    if values["knative_operator"]["fleet"]["enabled"] == true {
        values["knative_operator"]["multicluster"]["enabled"] = json!(true);
    }
    // `/debug` has the permission of metrics.
    if values["metrics"]["debug"] == true {
        values["metrics"]["secure"] = json!(true);
    }
    values
}

/// Renders each of `all` with `chart`, and parses each document once.
fn render(chart: &Path, all: &[Value]) {
    let mut seen = HashSet::new();
    for values in all {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), values.to_string()).unwrap();
        let mut helm = Command::new(tools::control_plane("helm").unwrap());
        helm.args(["template", "release"]).args(tools::OFFLINE).arg(chart).arg("-f").arg(file.path());
        let text = output(&mut helm).unwrap_or_else(|error| panic!("{error}\n{values}"));
        for document in text.split("\n---\n").filter(|document| seen.insert((*document).to_owned())) {
            // A mapping with a key twice can't be parsed.
            let parsed = serde_saphyr::from_multiple::<Value>(document);
            let objects = parsed.unwrap_or_else(|error| panic!("{error}\n{values}\n{document}"));
            for object in objects.iter().filter(|object| !object.is_null()) {
                let is_complete = object["kind"].is_string() && object["metadata"]["name"].is_string();
                assert!(is_complete, "{values}\n{document}");
            }
        }
    }
}

#[test]
fn each_toggle_and_each_pair_of_toggles_is_valid() {
    let folder = metadata::copy();
    let chart = folder.path();
    // The definitions are most of the text, and no toggle changes them.
    for entry in fs::read_dir(chart.join("files/crds")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.split("  versions:").next().unwrap()).unwrap();
    }
    let mut all = Vec::new();
    let text = fs::read_to_string(chart.join("values.yaml")).unwrap();
    toggles(&serde_saphyr::from_str(&text).unwrap(), "", &mut all);
    let webhook = "knative_operator.operator_webhook";
    all.push((format!("{webhook}.certificates.source"), json!("cert-manager")));
    all.push((format!("{webhook}.authorization"), json!("warn")));
    assert!(all.len() > 60 && all.len() < 128, "{}", all.len());
    let mut rows: Vec<Value> = all.iter().map(|toggle| values(std::iter::once(toggle))).collect();
    // All and none; and two numbers differ in a bit: in one of its rows, the one toggle is on and
    // the other is off, and in the other row it is the other way around.
    rows.extend([values(all.iter()), values(std::iter::empty())]);
    for (bit, side) in (0..7_u32).flat_map(|bit| [(bit, 0_usize), (bit, 1)]) {
        let chosen = all.iter().enumerate().filter(|&(number, _)| (number >> bit) & 1 == side);
        rows.push(values(chosen.map(|(_, toggle)| toggle)));
    }
    std::thread::scope(|scope| {
        for part in rows.chunks(rows.len().div_ceil(4)) {
            scope.spawn(move || render(chart, part));
        }
    });
}
