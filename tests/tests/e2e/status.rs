//! `knative-operator status` and `wait`, against a real hub.

use std::path::Path;
use std::process::Stdio;
use std::time::Instant;

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::kubeconfig::{User, kubeconfig};
use knative_operator_tests::{Result, tools, wait};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::opener;
use crate::support::{apply, delete, fleet, namespace, run, serving, step};

const PLACE: &str = "status-cli";

/// Runs the command; its exit status, standard output and standard error.
pub async fn command(kubeconfig: &Path, arguments: &[&str]) -> Result<(Option<i32>, String, String)> {
    let binary = tools::binary("knative-operator")?;
    let output = Command::new(binary).args(arguments).arg("--kubeconfig").arg(kubeconfig).output().await?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Ok((output.status.code(), text(&output.stdout), text(&output.stderr)))
}

async fn versions_are_shown(config: &Path) -> Result<()> {
    let (code, text, hint) = command(config, &["status", "-n", PLACE]).await?;
    assert_eq!((code, text.as_str()), (Some(0), "No KnativeServing, KnativeEventing or KnativeFleet.\n"));
    assert!(hint.contains("Use --all-namespaces (-A)"), "{hint}");
    let (code, text, warnings) = command(config, &["version", "-o", "json"]).await?;
    assert_eq!((code, warnings.as_str()), (Some(0), ""), "{text}");
    let value: Value = serde_json::from_str(&text)?;
    let (version, server) = (env!("CARGO_PKG_VERSION"), &value["server"]);
    for found in [&value["client"], &server["operator"], &server["webhook"]] {
        assert_eq!(found["version"], version, "{text}");
    }
    assert_eq!(server["chart"], version, "{text}");
    Ok(())
}

/// A problem that does not end by itself: `wait` fails soon, with the remedy.
async fn problem_has_a_remedy(config: &Path) -> Result<()> {
    let started = Instant::now();
    let arguments = ["wait", "knativeserving/lost", "-n", PLACE, "--timeout", "900s"];
    let (code, text, problem) = command(config, &arguments).await?;
    assert_eq!(code, Some(1), "{text} {problem}");
    assert!(text.contains("ClusterProfileNotFound: ClusterProfile fleet-system/nowhere does not exist"), "{text}");
    assert!(
        problem.contains("this does not end by itself")
            && problem.contains("What to do: Create ClusterProfile nowhere in namespace fleet-system"),
        "{problem}"
    );
    assert!(started.elapsed() < wait::LIMIT);
    let (code, text, _) = command(config, &["status", "-n", PLACE]).await?;
    assert_eq!(code, Some(1), "{text}");
    for part in ["1 cluster: 1 Unreachable", "? fleet-system/nowhere  Unreachable", "  kubectl get clusterprofiles -A"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    let (code, text, _) = command(config, &["status", "-n", PLACE, "-o", "json"]).await?;
    let value: Value = serde_json::from_str(&text)?;
    assert_eq!(
        (code, &value["ready"], &value["clusters"][0]["state"]),
        (Some(1), &Value::Bool(false), &"Unreachable".into())
    );
    assert_eq!(value["clusters"][0]["components"][0]["problem"]["remedy"]["canRecover"], false);
    Ok(())
}

/// Changes, as lines, until the deletion of `lost`.
async fn changes_are_lines(hub: &Cluster, config: &Path, lost: &Value) -> Result<()> {
    let mut watch = Command::new(tools::binary("knative-operator")?)
        .args(["status", "--watch", "-n", PLACE, "--kubeconfig"])
        .arg(config)
        .stdout(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(watch.stdout.take().ok_or("no output")?).lines();
    let first = lines.next_line().await?.unwrap_or_default();
    assert!(first.ends_with("does not exist; create it, or correct spec.clusterProfileRef"), "{first}");
    delete(hub, lost).await?;
    let last = async {
        loop {
            let line = lines.next_line().await?.unwrap_or_default();
            if line.is_empty() || line.ends_with("KnativeServing status-cli/lost on fleet-system/nowhere: deleted") {
                return Ok::<String, std::io::Error>(line);
            }
        }
    };
    assert!(!tokio::time::timeout(wait::LIMIT, last).await??.is_empty());
    let (code, text, _) = command(config, &["wait", "ks/lost", "-n", PLACE, "--for", "deleted"]).await?;
    assert_eq!(code, Some(2), "{text}");
    let (code, text, _) = command(config, &["wait", "knativeserving/lost", "-n", PLACE, "--for", "deleted"]).await?;
    assert_eq!((code, text.contains("does not exist")), (Some(0), true), "{text}");
    let arguments = ["wait", "knativeserving/lost", "-n", PLACE, "--timeout", "1s"];
    let (code, _, problem) = command(config, &arguments).await?;
    assert_eq!(
        (code, problem.as_str()),
        (
            Some(1),
            "timed out waiting for KnativeServing status-cli/lost to be Ready: KnativeServing status-cli/lost does not exist yet\n\
             What to do: Set a longer --timeout, or see the state:\n  knative-operator status -n status-cli\n"
        )
    );
    Ok(())
}

/// Without permission, and without an API server.
async fn missing_permission_is_reported(hub: &Cluster) -> Result<()> {
    hub.kubectl(&["create", "serviceaccount", "nobody", "-n", PLACE], "").await?;
    let token = hub.token(PLACE, "nobody", 3600).await?;
    let file = hub.dir().join("nobody.kubeconfig");
    let user = User::Token(&token);
    std::fs::write(&file, kubeconfig("nobody", &hub.url(), hub.authority(), PLACE, &user))?;
    let (code, _, error) = command(&file, &["status"]).await?;
    assert_eq!(code, Some(2));
    assert!(error.contains("is forbidden") && error.contains("Use -n for a namespace that you can read"), "{error}");
    std::fs::write(&file, kubeconfig("gone", "https://127.0.0.1:1", hub.authority(), PLACE, &user))?;
    let (code, _, error) = command(&file, &["status"]).await?;
    assert_eq!((code, error.contains("onnection refused")), (Some(2), true), "{error}");
    assert!(!error.contains(&token));
    Ok(())
}

#[test]
fn status_and_wait_show_progress_problems_and_remedies() {
    run(async {
        let fleet = fleet().await?;
        let config = fleet.hub.kubeconfig();
        namespace(&fleet.hub, PLACE).await?;
        step("nothing is installed", versions_are_shown(&config)).await?;
        let lost = serving(PLACE, "lost", Some("nowhere"), &fleet.releases);
        apply(&fleet.hub, &lost).await?;
        step("a problem has a remedy", problem_has_a_remedy(&config)).await?;
        step("changes are lines", changes_are_lines(&fleet.hub, &config, &lost)).await?;
        step("without permission", missing_permission_is_reported(&fleet.hub)).await?;
        fleet.hub.object("namespace", "", PLACE).start_deletion().await?;
        opener::arguments_have_no_token(&fleet.hub).await
    });
}
