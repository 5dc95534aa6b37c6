//! `Chart.yaml`, the texts that are generated from the values, and the notes.

use std::fs;
use std::process::Command;

use knative_operator_shared::{fleet_crd, yaml};
use knative_operator_tests::{chart_reference, tools};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::{Component, crd, output, parsed};

/// Kinds of changes that Artifact Hub knows.
const CHANGES: [&str; 6] = ["added", "changed", "deprecated", "removed", "fixed", "security"];

/// A copy of the chart, which tests can change.
pub(super) fn copy() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let chart = tools::project().join("charts/knative-operator/.");
    assert!(Command::new("cp").arg("-r").arg(chart).arg(folder.path()).status().unwrap().success());
    folder
}

#[test]
fn annotations_for_artifact_hub_are_valid() {
    let file = tools::project().join("charts/knative-operator/Chart.yaml");
    let chart: Value = yaml::parse(&fs::read_to_string(file).unwrap()).unwrap();
    for field in ["home", "icon"] {
        assert!(chart[field].as_str().unwrap().starts_with("https://"), "{field}");
    }
    let minor = tools::OFFLINE[1];
    assert_eq!(chart["kubeVersion"], format!(">={minor}.0-0"));
    let readme = fs::read_to_string(tools::project().join("README.md")).unwrap();
    assert!(readme.contains(&format!("Kubernetes {minor} or later")));
    let annotation = |name: &str| chart["annotations"][format!("artifacthub.io/{name}")].as_str().unwrap();
    let list = |name: &str| yaml::parse::<Vec<Value>>(annotation(name)).unwrap();
    let is_url = |value: &Value| value["url"].as_str().unwrap().starts_with("https://");
    assert_eq!((annotation("license"), annotation("category")), ("Apache-2.0", "integration-delivery"));
    assert!(list("links").iter().all(|link| link["name"].is_string() && is_url(link)));
    assert!(list("recommendations").iter().all(is_url));
    for change in list("changes") {
        assert!(CHANGES.contains(&change["kind"].as_str().unwrap()) && change["description"].is_string(), "{change}");
    }
    let mut definitions = Component::ALL.map(crd::definition).to_vec();
    definitions.extend(fleet_crd::definitions());
    let known: Vec<Value> = definitions
        .iter()
        .map(|definition| {
            let spec = &definition["spec"];
            json!([definition["metadata"]["name"], spec["names"]["kind"], spec["versions"][0]["name"]])
        })
        .collect();
    let listed = list("crds").iter().map(|crd| json!([crd["name"], crd["kind"], crd["version"]])).collect::<Vec<_>>();
    assert_eq!(listed, known);
    assert!(list("crds").iter().all(|crd| crd["displayName"].is_string() && crd["description"].is_string()));
    let kinds = list("crdsExamples").iter().map(|object| object["kind"].clone()).collect::<Vec<_>>();
    assert_eq!(kinds, ["KnativeServing", "KnativeEventing", "KnativeFleet"]);
}

#[test]
fn readme_and_schema_are_up_to_date_and_in_the_package() {
    for (path, content) in chart_reference::files().unwrap() {
        let stored = fs::read_to_string(tools::project().join(path)).unwrap();
        assert_eq!(stored, content, "{path} is stale: run `make generate`");
    }
    let folder = tempfile::tempdir().unwrap();
    let helm = || Command::new(tools::control_plane("helm").unwrap());
    let chart = tools::project().join("charts/knative-operator");
    output(helm().arg("package").arg(chart).arg("--destination").arg(folder.path())).unwrap();
    let package = fs::read_dir(folder.path()).unwrap().next().unwrap().unwrap().path();
    let readme = output(helm().args(["show", "readme"]).arg(package)).unwrap();
    for row in ["| `knative_operator.fleet.enabled` | `false` | Whether ", "| `extraObjects` | `[]` | "] {
        assert!(readme.contains(row), "{row} is missing in: {readme}");
    }
}

#[test]
fn chart_passes_the_strict_lint() {
    let mut helm = Command::new(tools::control_plane("helm").unwrap());
    helm.args(["lint", "--strict"]).args(tools::OFFLINE).arg(tools::project().join("charts/knative-operator"));
    let report = output(&mut helm).unwrap();
    assert!(!report.contains("[INFO]") && !report.contains("[WARNING]"), "{report}");
}

/// `helm template` shows no notes, so they are part of an object here.
#[test]
fn notes_have_the_mode_the_documents_and_the_next_command() {
    let chart = copy();
    let templates = chart.path().join("templates");
    fs::rename(templates.join("NOTES.txt"), chart.path().join("files/notes.txt")).unwrap();
    let object = "kind: Notes\ntext: {{ tpl (.Files.Get \"files/notes.txt\") . | quote }}\n";
    fs::write(templates.join("notes.yaml"), object).unwrap();
    for more in [&[][..], &["--is-upgrade"]] {
        for (value, mode) in [("enforce", "enforce"), ("warn", "warn"), ("false", "off")] {
            let mut helm = Command::new(tools::control_plane("helm").unwrap());
            helm.args(["template", "release", "--show-only", "templates/notes.yaml"]).args(tools::OFFLINE).args(more);
            helm.args(["--set", &format!("knative_operator.operator_webhook.authorization={value}")]);
            let objects = parsed(&output(helm.arg(chart.path())).unwrap());
            let notes = objects[0]["text"].as_str().unwrap();
            let mode = format!("Users' permissions: {mode} (");
            for part in [mode.as_str(), "Documents: https://", "knative-operator status -A", "helm test release"] {
                assert!(notes.contains(part), "{part} is missing in: {notes}");
            }
        }
    }
}
