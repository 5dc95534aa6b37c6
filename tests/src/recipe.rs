//! Recipes of the documents: the Jobs of gates, and their containers as processes.

use std::collections::BTreeMap;
use std::fs::File;
use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;

use crate::kubelet::expand;
use crate::{Result, environment, project, wait};

/// The guide of fleets.
pub const FLEETS: &str = "docs/user/fleet.md";
/// Time limit of a container.
const LIMIT: Duration = wait::LIMIT;

/// The blocks of YAML in the document `name`.
pub fn yaml(name: &str) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(project().join(name))?;
    let parse = |block: &str| -> Result<Value> {
        let (example, _) = block.split_once("```\n").ok_or_else(|| format!("{name}: a block has no end"))?;
        Ok(serde_saphyr::from_str(example)?)
    };
    text.split("```yaml\n").skip(1).map(parse).collect()
}

/// The gates in the guide of fleets that are recipes: blocks of their own.
pub fn gates() -> Result<Vec<Value>> {
    let blocks = yaml(FLEETS)?;
    Ok(blocks.iter().filter_map(Value::as_array).flatten().cloned().collect())
}

/// The recipe `name`.
pub fn gate(name: &str) -> Result<Value> {
    let found = gates()?.into_iter().find(|gate| gate["name"] == name);
    found.ok_or_else(|| format!("{FLEETS} has no recipe {name}").into())
}

/// The container of the Job of `gate`.
pub fn container(gate: &Value) -> &Value {
    &gate["job"]["spec"]["template"]["spec"]["containers"][0]
}

/// How a container ended.
#[derive(Debug)]
pub struct Ended {
    /// Its exit code.
    pub code: i32,
    /// Its log.
    pub log: String,
}

impl Ended {
    /// The last line of the log.
    pub fn last_words(&self) -> &str {
        self.log.trim_end().lines().next_back().unwrap_or_default()
    }
}

/// Runs `container` as a process with `variables`. `to` replaces the address `from` in its command
/// line; everything else is as in the document.
pub async fn run(container: &Value, variables: &BTreeMap<String, String>, from: &str, to: &str) -> Result<Ended> {
    let words = |field: &str| {
        let words = container[field].as_array().into_iter().flatten();
        words.filter_map(Value::as_str).map(str::to_owned).collect::<Vec<_>>()
    };
    let mut line = words("command");
    if line.is_empty() {
        line.push(program_of(container["image"].as_str().unwrap_or_default())?.to_owned());
    }
    line.extend(words("args"));
    if !line.iter().any(|word| word.contains(from)) {
        return Err(format!("the recipe does not have the address {from}: {container}").into());
    }
    let line: Vec<String> = line.iter().map(|word| expand(word, variables).replace(from, to)).collect();
    let (program, arguments) = line.split_first().ok_or("no program")?;
    let folder = tempfile::tempdir()?;
    // One file for both, so that the last line is the last one.
    let path = folder.path().join("log");
    let log = File::options().create(true).append(true).open(&path)?;
    let mut command = std::process::Command::new(program);
    environment::confine(command.args(arguments), folder.path()).envs(variables);
    command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
    let mut child = tokio::process::Command::from(command).kill_on_drop(true).spawn()?;
    let ended = tokio::time::timeout(LIMIT, child.wait()).await;
    let status = ended.map_err(|_| format!("{program} has not ended after {LIMIT:?}"))??;
    Ok(Ended { code: status.code().unwrap_or(-1), log: std::fs::read_to_string(path)? })
}

/// The program that `image` starts.
fn program_of(image: &str) -> Result<&'static str> {
    match image.split_once(':') {
        Some(("docker.io/curlimages/curl", _)) => Ok("curl"),
        _ => Err(format!("unknown program of the image {image}").into()),
    }
}
