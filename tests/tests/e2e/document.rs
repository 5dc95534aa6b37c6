//! Runs the shell commands in a document.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::kubeconfig::{User, kubeconfig};
use knative_operator_tests::{Result, pki, tools};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::process::Command;

/// Comment before a block that no test can run.
const NOT_RUN: &str = "<!-- not run: ";

/// A block of shell commands.
#[derive(Debug)]
pub struct Block {
    /// The commands.
    pub script: String,
    /// Heading of its section.
    pub heading: String,
    /// Why no test can run it.
    pub not_run: Option<String>,
}

/// The blocks of shell commands in `text`, which is Markdown.
pub fn blocks(text: &str) -> Vec<Block> {
    let (mut all, mut lines) = (Vec::new(), text.lines());
    let (mut heading, mut not_run) = (String::new(), None);
    while let Some(line) = lines.next() {
        let indent = line.len() - line.trim_start().len();
        if let Some(language) = line.trim().strip_prefix("```") {
            let body: Vec<&str> = lines
                .by_ref()
                .take_while(|line| line.trim() != "```")
                .map(|line| line.get(indent..).unwrap_or(""))
                .collect();
            if ["sh", "bash"].contains(&language) {
                all.push(Block { script: body.join("\n"), heading: heading.clone(), not_run: not_run.take() });
            }
        } else if let Some(reason) = line.trim().strip_prefix(NOT_RUN) {
            not_run = Some(reason.trim_end_matches("-->").trim().to_owned());
        } else if line.starts_with('#') {
            line.trim_start_matches('#').trim().clone_into(&mut heading);
        }
    }
    all
}

/// The commands of document `name` that tests run, with their headings.
pub fn document(name: &str) -> Result<Vec<Block>> {
    let mut all = blocks(&std::fs::read_to_string(tools::project().join(name))?);
    all.retain(|block| block.not_run.is_none());
    Ok(all)
}

/// A kubeconfig with a context for each of `contexts`; the first is the current one.
fn merge(contexts: &[(&str, &Cluster)], file: &Path) -> Result<()> {
    let current = contexts.first().map(|(name, _)| *name);
    let mut whole = json!({"apiVersion": "v1", "kind": "Config", "current-context": current, "clusters": [], "users": [], "contexts": []});
    for (name, cluster) in contexts {
        let read = |file: &str| std::fs::read_to_string(cluster.dir().join(file));
        let issued = pki::Issued { certificate: read("admin.crt")?, key: read("admin.key")? };
        let (server, authority) = cluster.pod_endpoint();
        let one: Value =
            serde_json::from_str(&kubeconfig(name, &server, &authority, "default", &User::Certificate(&issued)))?;
        for list in ["clusters", "users", "contexts"] {
            whole[list].as_array_mut().unwrap().push(one[list][0].clone());
        }
    }
    Ok(std::fs::write(file, whole.to_string())?)
}

/// A `helm` that adds the test's values, and then waits until the test has started the processes of
/// the Deployments.
fn helm(folder: &Path) -> Result<String> {
    let (real, folder) = (tools::control_plane("helm")?, folder.display());
    Ok(format!(
        r#"#!/usr/bin/env bash
set -euo pipefail
more=() installs=
for word in "$@"; do
  case $word in install | upgrade) more=(-f "{folder}/values-of-the-test.json") installs=yes; break ;; esac
done
"{real}" "$@" "${{more[@]}}"
[ -z "$installs" ] || {{ echo >"{folder}/installed"; read -r _ <"{folder}/started"; }}
"#,
        real = real.display()
    ))
}

/// A shell: a folder with the chart, a kubeconfig, and the commands.
pub struct Shell {
    folder: TempDir,
    installed: pipe::Receiver,
    started: pipe::Sender,
}

impl Shell {
    /// A shell for the clusters `contexts`; its Helm adds `values`.
    pub fn new(contexts: &[(&str, &Cluster)], values: &Value) -> Result<Self> {
        use std::os::unix::fs::{PermissionsExt, symlink};
        let folder = tempfile::tempdir()?;
        let path = folder.path();
        merge(contexts, &path.join("kubeconfig"))?;
        std::fs::write(path.join("values-of-the-test.json"), values.to_string())?;
        symlink(tools::project().join("charts"), path.join("charts"))?;
        std::fs::create_dir(path.join("bin"))?;
        symlink(tools::control_plane("kubectl")?, path.join("bin/kubectl"))?;
        symlink(tools::binary("knative-operator")?, path.join("bin/knative-operator"))?;
        std::fs::write(path.join("bin/helm"), helm(path)?)?;
        std::fs::set_permissions(path.join("bin/helm"), PermissionsExt::from_mode(0o755))?;
        for pipe in ["installed", "started"] {
            let made = std::process::Command::new("mkfifo").arg(path.join(pipe)).status()?;
            assert!(made.success(), "mkfifo failed");
        }
        // Open for both, so that neither end sees the other close.
        let options = || pipe::OpenOptions::new().read_write(true).clone();
        let (installed, started) =
            (options().open_receiver(path.join("installed"))?, options().open_sender(path.join("started"))?);
        Ok(Self { folder, installed, started })
    }

    /// The working directory.
    pub fn folder(&self) -> PathBuf {
        self.folder.path().to_owned()
    }

    /// Runs `script` and returns its output; after each installation, `start` starts the processes
    /// of the Deployments.
    pub async fn run(&mut self, script: &str, mut start: impl AsyncFnMut() -> Result<()>) -> Result<String> {
        let folder = self.folder();
        let whole = format!(
            "set -euo pipefail\n[ ! -f variables ] || . ./variables\n{script}\ndeclare -p TOKEN CA SERVER OLD_HUB >variables 2>/dev/null || true\n"
        );
        let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH")?);
        let mut bash = Command::new("bash");
        bash.args(["-c", &whole]).current_dir(&folder).env("KUBECONFIG", folder.join("kubeconfig")).env("PATH", path);
        let child =
            bash.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
        let mut done = std::pin::pin!(child.wait_with_output());
        let done = loop {
            tokio::select! {
                done = &mut done => break done?,
                read = self.installed.read_u8() => {
                    read?;
                    start().await.map_err(|error| format!("{script}\n\n{error}"))?;
                    self.started.write_all(b"\n").await?;
                }
            }
        };
        let printed = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        if done.status.success() { Ok(printed) } else { Err(format!("{script}\n\n{printed}").into()) }
    }
}

/// For commands that install nothing.
pub async fn nothing_installed() -> Result<()> {
    Err("something was installed here".into())
}

#[test]
fn blocks_have_headings_and_reasons() {
    let text = "# A\n\n```sh\none\n```\n\n## B\n\n- x\n\n  ```bash\n  two\n    three\n  ```\n\n<!-- not run: no network -->\n```sh\nfour\n```\n\n```yaml\nfive: 5\n```\n";
    let all: Vec<_> = blocks(text).into_iter().map(|b| (b.heading, b.script, b.not_run)).collect();
    let block = |heading: &str, script: &str, reason: Option<&str>| {
        (heading.to_owned(), script.to_owned(), reason.map(str::to_owned))
    };
    assert_eq!(
        all,
        [block("A", "one", None), block("B", "two\n  three", None), block("B", "four", Some("no network"))]
    );
}
