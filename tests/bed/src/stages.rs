//! The stages of KWOK: what it does with nodes and Pods.

use std::path::{Path, PathBuf};

use serde_json::json;

use crate::{Result, tools};

/// The file with the stages for a cluster with folder `dir`: KWOK does not play the Pods of the
/// `real` namespaces.
pub fn file(dir: &Path, real: &[&str]) -> Result<PathBuf> {
    let all = tools::control_plane("kwok-stages.yaml")?;
    if real.is_empty() {
        return Ok(all);
    }
    let (own, mut text) = (dir.join("kwok-stages.yaml"), String::new());
    let selector = "    matchExpressions:\n";
    let excluded =
        format!("{selector}    - key: '.metadata.namespace'\n      operator: 'NotIn'\n      values: {}\n", json!(real));
    for stage in std::fs::read_to_string(all)?.split_inclusive("\n---\n") {
        let is_pod = stage.contains("kind: Pod\n");
        text.push_str(&if is_pod { stage.replacen(selector, &excluded, 1) } else { stage.to_owned() });
    }
    std::fs::write(&own, text)?;
    Ok(own)
}
