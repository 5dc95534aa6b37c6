//! Commands of kubectl and helm.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::AsyncWriteExt;

use crate::{Result, environment, tools};

/// Time limit of a command.
const LIMIT: Duration = Duration::from_secs(600);

/// Runs `tool` on the cluster with the folder `dir`; returns whether it succeeded, its stdout, and
/// its stderr.
pub async fn run(tool: &str, arguments: &[&str], stdin: &str, dir: &Path) -> Result<(bool, String, String)> {
    let home = dir.join("home");
    std::fs::create_dir_all(&home)?;
    let mut command = std::process::Command::new(tools::control_plane(tool)?);
    environment::confine(command.args(arguments), &home).env("KUBECONFIG", dir.join("kubeconfig"));
    // It ends before it would pay to collect garbage.
    command.env("GOGC", "off").env("GOMEMLIMIT", "1GiB");
    let mut child = tokio::process::Command::from(command)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut input = child.stdin.take().ok_or("no stdin")?;
    let ended = async {
        input.write_all(stdin.as_bytes()).await?;
        drop(input);
        child.wait_with_output().await
    };
    let output = tokio::time::timeout(LIMIT, ended)
        .await
        .map_err(|_| format!("{tool} {} has not ended after {LIMIT:?}", arguments.join(" ")))??;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.success(), text(&output.stdout), text(&output.stderr)))
}
