//! Rendering by the real binary: compared with the Go operator and with golden files, and errors.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures)] // these are tests

mod access;
mod alerts;
mod crds;
mod defects;
mod differential;
mod downloads;
mod examples;
mod fleet_reasons;
mod gitops;
mod gitops_fleets;
mod golden;
mod identifiers;
mod images;
mod instances;
mod knative_docs;
mod lint;
mod log_messages;
mod patches;
mod permissions;
mod producers;
mod recipes;
mod references;
mod refusals;
mod remedies;
mod spoke_role;
mod time_limits;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use knative_operator_tests::tools;

/// Runs `knative-operator` with `arguments`.
fn operator(arguments: &[&str]) -> Output {
    command().args(arguments).output().unwrap()
}

/// `knative-operator` without its environment variables.
fn command() -> Command {
    let mut command = Command::new(tools::binary("knative-operator").unwrap());
    for variable in ["KO_DATA_PATH", "KUBERNETES_MIN_VERSION", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"] {
        command.env_remove(variable);
    }
    command
}

/// The project's small release.
fn small() -> PathBuf {
    tools::project().join("tests/release")
}

/// Writes a KnativeServing with `spec` to `directory`; returns its path.
fn serving(directory: &Path, spec: &str) -> PathBuf {
    let path = directory.join("resource.yaml");
    let head = "apiVersion: operator.knative.dev/v1beta1\nkind: KnativeServing\nmetadata: {name: serving, namespace: knative-serving}\n";
    std::fs::write(&path, format!("{head}spec: {spec}\n")).unwrap();
    path
}

/// Output of `render` for a KnativeServing with `spec`: stdout, or stderr.
fn render(spec: &str) -> Result<String, String> {
    let directory = tempfile::tempdir().unwrap();
    let file = serving(directory.path(), spec);
    outcome(&operator(&["render", "-f", file.to_str().unwrap(), "--releases", small().to_str().unwrap()]))
}

/// Output: stdout after success, else stderr, with nothing on stdout.
fn outcome(output: &Output) -> Result<String, String> {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()));
    Err(text(&output.stderr))
}
