//! Runs a credential plugin (`client.authentication.k8s.io`) as a process group of its own, with
//! limits on time and output, and kills the group at the end.

use std::process::Stdio;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use jiff::Timestamp;
use knative_operator_base::redact::redact;
use rustix::process::{Pid, Signal, kill_process_group};
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::process::Command;
use tracing::Instrument;

use super::error::{AccessError, Reason};
use super::profile::Plugin;
use super::provider::EXEC_EXTENSION;

/// Maximum output in bytes.
const OUTPUT_LIMIT: u64 = 256 << 10;
/// Length of the end of standard error that is kept, in bytes.
const ERROR_LIMIT: usize = 16 << 10;
/// Maximum length of a line of standard error in a message, in characters.
const LINE_LIMIT: usize = 300;
/// Maximum length of the end of standard error in the log, in characters.
const TAIL_LIMIT: usize = 2000;

/// The credential from a plugin. Its `Debug` output has no secrets.
#[derive(Clone, Debug)]
pub struct Credential {
    /// Bearer token.
    pub token: Option<SecretString>,
    /// Client certificate and key, in PEM, the key second.
    pub identity: Option<(String, SecretString)>,
    /// Expiration time.
    pub expires: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExecCredential {
    api_version: String,
    kind: String,
    #[serde(default)]
    status: Option<Status>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Status {
    #[serde(default)]
    token: Option<SecretString>,
    #[serde(default)]
    client_certificate_data: Option<String>,
    #[serde(default)]
    client_key_data: Option<SecretString>,
    #[serde(default)]
    expiration_timestamp: Option<Timestamp>,
}

/// Kills a process group when dropped.
struct ProcessGroup(Option<Pid>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(group) = self.0 {
            // Fails only if no process of the group is left.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }
}

/// Runs `plugin` and reads its credential, within `timeout`.
pub async fn run(plugin: &Plugin, timeout: Duration) -> Result<Credential, AccessError> {
    let failed = |why: String| {
        AccessError::new(
            Reason::AccessProviderFailed,
            format!("access provider {}: {} {why}", plugin.provider, plugin.command),
        )
    };
    let mut child = Command::new(&plugin.command)
        .args(&plugin.args)
        .envs(&plugin.env)
        .env("KUBERNETES_EXEC_INFO", plugin.info.to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(|e| failed(format!("can't start: {e}")))?;
    let group = ProcessGroup(child.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?)));
    let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(failed("has no output".to_owned()));
    };
    let work = async {
        // Drain standard error, so that a verbose plugin is not blocked by a full pipe.
        let (out, err, status) = tokio::join!(read(stdout, OUTPUT_LIMIT), read_tail(stderr), child.wait());
        (out, err, status)
    };
    let span = tracing::debug_span!("credential_plugin", provider = plugin.provider, command = plugin.command);
    let finished = tokio::time::timeout(timeout, work).instrument(span).await;
    drop(group);
    let Ok((out, err, status)) = finished else {
        return Err(failed(format!("did not answer within {timeout:?} and was killed")));
    };
    let (out, err) = (out.unwrap_or_default(), err.unwrap_or_default());
    let status = status.map_err(|e| failed(format!("can't be awaited: {e}")))?;
    if !status.success() {
        let code = status.code().map_or_else(|| "by a signal".to_owned(), |c| format!("with status {c}"));
        let (provider, command) = (&plugin.provider, &plugin.command);
        tracing::warn!(provider, command, stderr = tail(&err), "the credential plugin failed");
        let hint = if plugin.info.pointer("/spec/cluster").is_some_and(|cluster| cluster["config"].is_null()) {
            format!(
                "; the access provider in the ClusterProfile has no extension {EXEC_EXTENSION}, with which many plugins find the credential, such as clusterName of secretreader"
            )
        } else {
            String::new()
        };
        return Err(failed(format!("ended {code}: {}{hint}", last_line(&err))));
    }
    if out.len() as u64 >= OUTPUT_LIMIT {
        return Err(failed(format!("printed more than {OUTPUT_LIMIT} bytes")));
    }
    parse(&out, &plugin.api_version).map_err(|why| failed(format!("printed an invalid ExecCredential: {why}")))
}

/// The first `limit` bytes of `from`; the rest is drained.
async fn read(mut from: impl AsyncRead + Unpin, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut kept = Vec::new();
    (&mut from).take(limit).read_to_end(&mut kept).await?;
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok(kept)
}

/// The last bytes of `from`.
async fn read_tail(mut from: impl AsyncRead + Unpin) -> std::io::Result<Vec<u8>> {
    let (mut kept, mut piece) = (Vec::new(), vec![0; ERROR_LIMIT]);
    loop {
        let read = from.read(&mut piece).await?;
        if read == 0 {
            return Ok(kept);
        }
        kept.extend_from_slice(&piece[..read]);
        if kept.len() > ERROR_LIMIT {
            kept.drain(..kept.len() - ERROR_LIMIT);
        }
    }
}

/// The end of `text` for the log, without credentials; lines become spaces.
fn tail(text: &[u8]) -> String {
    let text = redact(&String::from_utf8_lossy(text));
    let skipped = text.chars().count().saturating_sub(TAIL_LIMIT);
    text.chars().skip(skipped).collect()
}

fn last_line(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let line = text.lines().map(str::trim).rfind(|l| !l.is_empty()).unwrap_or("no output on standard error");
    redact(line).chars().take(LINE_LIMIT).collect()
}

/// Why the output of a plugin is no credential. The text doesn't quote it: it may contain a token.
#[derive(Debug, thiserror::Error)]
enum InvalidOutput {
    #[error("not the expected JSON in line {} column {}", .0.line(), .0.column())]
    Json(serde_json::Error),
    #[error("its kind is not ExecCredential")]
    Kind,
    #[error("its apiVersion is not {0}")]
    ApiVersion(String),
    #[error("it has no status")]
    NoStatus,
    #[error("it has one of clientCertificateData and clientKeyData without the other")]
    HalfIdentity,
    #[error("it has neither a token nor a client certificate")]
    NoCredential,
}

/// Parses the plugin's output.
fn parse(out: &[u8], api_version: &str) -> Result<Credential, InvalidOutput> {
    let credential: ExecCredential = serde_json::from_slice(out).map_err(InvalidOutput::Json)?;
    if credential.kind != "ExecCredential" {
        return Err(InvalidOutput::Kind);
    }
    if credential.api_version != api_version {
        return Err(InvalidOutput::ApiVersion(api_version.to_owned()));
    }
    let status = credential.status.ok_or(InvalidOutput::NoStatus)?;
    // A script that finds nothing may print empty texts. As client-go, these count as missing.
    let is_set = |secret: &SecretString| !secret.expose_secret().trim().is_empty();
    let certificate = status.client_certificate_data.filter(|text| !text.trim().is_empty());
    let token = status.token.filter(is_set);
    let identity = match (certificate, status.client_key_data.filter(is_set)) {
        (None, None) => None,
        (Some(certificate), Some(key)) => Some((certificate, key)),
        _ => return Err(InvalidOutput::HalfIdentity),
    };
    if token.is_none() && identity.is_none() {
        return Err(InvalidOutput::NoCredential);
    }
    Ok(Credential { token, identity, expires: status.expiration_timestamp })
}

/// `text` in base64, the encoding of keys in kube's configuration.
pub fn base64(text: &str) -> String {
    BASE64_STANDARD.encode(text)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;

    fn shell(script: &str) -> Plugin {
        Plugin {
            provider: "test".into(),
            command: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            env: BTreeMap::from([("GIVEN".into(), "yes".into())]),
            api_version: "client.authentication.k8s.io/v1".into(),
            info: json!({"spec": {"cluster": {"config": {"clusterName": "c"}}}}),
        }
    }

    async fn error(script: &str) -> String {
        let error = run(&shell(script), Duration::from_millis(500)).await.unwrap_err();
        assert_eq!(error.reason, Reason::AccessProviderFailed);
        error.message
    }

    #[tokio::test]
    async fn token_is_read_and_never_printed() {
        let script = r#"[ "$GIVEN" = yes ] && echo "$KUBERNETES_EXEC_INFO" | grep -q clusterName && echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"canary","expirationTimestamp":"2030-01-01T00:00:00Z"}}'"#;
        let credential = run(&shell(script), Duration::from_secs(5)).await.unwrap();
        assert!(credential.token.is_some() && credential.expires.is_some());
        assert!(!format!("{credential:?}").contains("canary"));
    }

    #[tokio::test]
    async fn failure_reports_last_line_of_stderr() {
        assert!(
            error("echo first >&2; echo 'no such secret' >&2; exit 1")
                .await
                .ends_with("ended with status 1: no such secret")
        );
        assert!(error("exit 3").await.contains("no output"));
        assert!(error("echo canary").await.contains("not the expected JSON in line 1"));
        assert!(!error("echo '{\"token\":\"canary\"}'").await.contains("canary"));
        assert!(
            error(r#"echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential"}'"#)
                .await
                .contains("no status")
        );
        assert!(error(r#"echo '{"apiVersion":"x","kind":"ExecCredential"}'"#).await.contains("apiVersion"));
        assert!(error("head -c 300000 /dev/zero").await.contains("printed more than"));
        let mut missing = shell("");
        missing.command = "/nowhere/plugin".into();
        let error = run(&missing, Duration::from_secs(1)).await.unwrap_err();
        assert!(error.message.contains("/nowhere/plugin can't start: No such file"), "{error}");
    }

    #[test]
    fn empty_texts_are_no_credential() {
        let printed = |status: serde_json::Value| {
            let v1 = "client.authentication.k8s.io/v1";
            let output = json!({"apiVersion": v1, "kind": "ExecCredential", "status": status});
            parse(output.to_string().as_bytes(), v1).map(|found| (found.token.is_some(), found.identity.is_some()))
        };
        for (status, expected) in [
            (json!({"token": "t", "clientCertificateData": "", "clientKeyData": ""}), (true, false)),
            (json!({"token": "", "clientCertificateData": "c", "clientKeyData": "k"}), (false, true)),
        ] {
            assert_eq!(printed(status).unwrap(), expected);
        }
        for (status, part) in [
            (json!({"token": ""}), "neither a token nor a client certificate"),
            (json!({"token": "\n"}), "neither a token nor a client certificate"),
            (json!({"token": "t", "clientCertificateData": "c", "clientKeyData": ""}), "without the other"),
        ] {
            let refused = printed(status).unwrap_err().to_string();
            assert!(refused.contains(part), "{refused}");
        }
    }

    #[test]
    fn log_has_the_end_of_stderr_without_credentials() {
        let lines = format!("{}\nreading secret a/b\ntoken: {}\nnot found\n", "x y ".repeat(2000), "8f2a".repeat(12));
        let tail = tail(lines.as_bytes());
        assert!(tail.len() <= TAIL_LIMIT && tail.ends_with("reading secret a/b token: [hidden] not found"), "{tail}");
    }

    #[tokio::test]
    async fn failure_without_configuration_names_the_extension() {
        let mut plugin = shell("echo 'no clusterName' >&2; exit 1");
        plugin.info = json!({"spec": {"cluster": {"server": "https://h"}}});
        let error = run(&plugin, Duration::from_secs(5)).await.unwrap_err().message;
        assert!(error.contains("ended with status 1: no clusterName; ") && error.contains(EXEC_EXTENSION), "{error}");
    }

    #[tokio::test]
    async fn plugin_of_another_architecture_is_named() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join("plugin");
        // An executable for another machine: the header of ELF, with a machine that doesn't exist.
        let mut header = b"\x7fELF\x02\x01\x01".to_vec();
        header.resize(16, 0);
        header.extend([2, 0, 0xfe, 0xfe, 1, 0, 0, 0]);
        header.resize(64, 0);
        std::fs::write(&program, header).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        let mut plugin = shell("");
        plugin.command = program.display().to_string();
        let error = loop {
            let error = run(&plugin, Duration::from_secs(5)).await.unwrap_err();
            // While another test forks, its child has the file open for a moment.
            if !error.message.contains("Text file busy") {
                break error;
            }
        };
        assert!(error.message.to_lowercase().contains("can't start: exec format error"), "{error}");
    }

    #[tokio::test]
    async fn hanging_plugin_is_killed_with_its_children() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let script = format!("sleep 600 & echo $! > {}; wait", file.path().display());
        assert!(error(&script).await.contains("did not answer within 500ms and was killed"));
        let child: i32 = std::fs::read_to_string(file.path()).unwrap().trim().parse().unwrap();
        let gone = || std::fs::read_to_string(format!("/proc/{child}/stat")).map_or(true, |s| s.contains(") Z "));
        let deadline = std::time::Instant::now() + Duration::from_secs(5);
        while !gone() {
            assert!(std::time::Instant::now() < deadline, "{child} lives on");
            tokio::task::yield_now().await;
        }
    }
}
