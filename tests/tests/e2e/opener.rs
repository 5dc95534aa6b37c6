//! What another user of the machine sees when `knative-operator ui` opens a browser: the arguments
//! of all processes. A script takes the place of the program that opens it.

use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::{Duration, Instant};

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::{Result, tools};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

/// Time limit until the browser is opened.
const LIMIT: Duration = knative_operator_tests::wait::LIMIT;
/// Copies the page that it opens, and the arguments of all processes.
const OPENER: &str = r#"#!/bin/sh
cp "$1" "$SEEN/page.html"
for process in /proc/[0-9]*; do tr '\0' ' ' <"$process/cmdline" 2>/dev/null; echo; done >"$SEEN/arguments.part"
mv "$SEEN/arguments.part" "$SEEN/arguments"
"#;

/// Opens the page of `hub`; no process has its token in its arguments.
pub async fn arguments_have_no_token(hub: &Cluster) -> Result<()> {
    let folder = tempfile::tempdir()?;
    let opener = folder.path().join("xdg-open");
    std::fs::write(&opener, OPENER)?;
    std::fs::set_permissions(&opener, PermissionsExt::from_mode(0o755))?;
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH")?);
    let mut page = Command::new(tools::binary("knative-operator")?)
        .args(["ui", "--kubeconfig"])
        .arg(hub.kubeconfig())
        .env("PATH", path)
        .env("SEEN", folder.path())
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(page.stdout.take().ok_or("no output")?).lines();
    let mut token = None;
    while let Some(line) = tokio::time::timeout(LIMIT, lines.next_line()).await?? {
        token = line.split_once("?token=").map(|(_, token)| token.to_owned());
        if token.is_some() {
            break;
        }
    }
    let token = token.ok_or("no token")?;
    let started = Instant::now();
    // Polled: the script reports nothing.
    let arguments = loop {
        match std::fs::read_to_string(folder.path().join("arguments")) {
            Ok(arguments) => break arguments,
            Err(error) if started.elapsed() > LIMIT => return Err(format!("no browser was opened: {error}").into()),
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    assert!(std::fs::read_to_string(folder.path().join("page.html"))?.contains(&token), "the page has the token");
    assert!(arguments.contains("knative-operator ui") && arguments.contains("xdg-open"), "{arguments}");
    assert!(!arguments.contains(&token), "a process has the token in its arguments");
    Ok(())
}
