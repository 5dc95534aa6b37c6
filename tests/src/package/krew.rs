//! The manifest of the kubectl plugin for krew, which installs the release bundle beside the
//! command (<https://krew.sigs.k8s.io/docs/developer-guide/plugin-manifest>).

use serde_json::{Value, json};

use super::REPOSITORY;
use crate::Result;

/// The manifest. `archives`: ARCHITECTURE=SHA256.
pub fn manifest(version: &str, archives: &[String]) -> Result<Value> {
    let mut platforms = Vec::new();
    for archive in archives {
        let (architecture, sha256) = archive.split_once('=').ok_or("an archive is ARCHITECTURE=SHA256")?;
        platforms.push(json!({
            "selector": {"matchLabels": {"os": "linux", "arch": architecture}},
            "uri": format!("{REPOSITORY}/releases/download/v{version}/knative-operator-{version}-linux-{architecture}.tar.gz"),
            "sha256": sha256,
            "bin": "knative-operator",
            "files": [{"from": "knative-operator", "to": "."}, {"from": "LICENSE", "to": "."},
                {"from": "bundle", "to": "."}],
        }));
    }
    Ok(json!({
        "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
        "kind": "Plugin",
        "metadata": {"name": "knative-operator"},
        "spec": {
            "version": format!("v{version}"),
            "homepage": REPOSITORY,
            "shortDescription": "Preview and roll out Knative installations",
            "description": "Renders and compares what the Knative operator installs, checks resources\nbefore they are applied, and plans and controls rollouts to many clusters.\n",
            "platforms": platforms,
        },
    }))
}
