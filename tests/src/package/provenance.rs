//! The provenance of the images (<https://slsa.dev/spec/v1.0/provenance>): the predicate of an
//! attestation, whose subject `cosign attest` adds.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use super::REPOSITORY;
use crate::Result;

/// The predicate. `materials`: files whose digests are dependencies of the build.
pub fn predicate(version: &str, revision: &str, created: &str, builder: &str, materials: &[PathBuf]) -> Result<Value> {
    let commit = revision.trim_end_matches("-modified");
    let mut dependencies =
        vec![json!({"uri": format!("git+{REPOSITORY}@{revision}"), "digest": {"gitCommit": commit}})];
    for file in materials {
        let output = Command::new("sha256sum").arg(file).output()?;
        let digest = String::from_utf8_lossy(&output.stdout).split_whitespace().next().unwrap_or_default().to_owned();
        if !output.status.success() {
            return Err(format!("{} can't be read", file.display()).into());
        }
        dependencies.push(json!({"uri": format!("file:{}", file.display()), "digest": {"sha256": digest}}));
    }
    Ok(json!({
        "buildDefinition": {
            "buildType": format!("{REPOSITORY}/blob/main/docs/develop/release.md"),
            "externalParameters": {"command": "make release", "version": version},
            "internalParameters": {},
            "resolvedDependencies": dependencies,
        },
        "runDetails": {
            "builder": {"id": builder},
            "metadata": {"invocationId": format!("{commit}/{version}"), "startedOn": created, "finishedOn": created},
        },
    }))
}
