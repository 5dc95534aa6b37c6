//! The process `knative-operator ui`.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use knative_operator_tests::{Result, releases, tools};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child as Running, Command as Start};

/// A running `ui`. Dropping it stops it.
pub struct Page {
    _process: Running,
    /// The URL with its token.
    pub url: String,
}

impl Page {
    /// Starts `ui` with `kubeconfig` and `arguments`.
    pub async fn start(kubeconfig: &Path, arguments: &[&str]) -> Result<Self> {
        let mut process = Start::new(tools::binary("knative-operator")?)
            .args(["ui", "--no-open", "--kubeconfig"])
            .arg(kubeconfig)
            .arg("--releases")
            .arg(releases::small().dir.as_ref() as &Path)
            .args(arguments)
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let stdout = process.stdout.take().ok_or("no stdout")?;
        let mut lines = BufReader::new(stdout).lines();
        let url = async {
            while let Some(line) = lines.next_line().await? {
                if line.starts_with("http://") {
                    return Ok(line);
                }
            }
            Err("ui printed no URL".into())
        };
        let url: Result<String> = tokio::time::timeout(Duration::from_secs(30), url).await?;
        Ok(Self { _process: process, url: url? })
    }
}
