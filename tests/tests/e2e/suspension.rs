//! The end of the time in which a migration suspends the webhooks, if the new webhook never runs.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use knative_operator_shared::api::Component;
use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use serde_json::{Value, json};

use crate::support::{nothing_to_install, resource};

const KINDS: [&str; 2] = ["validatingwebhookconfiguration", "mutatingwebhookconfiguration"];
const NAMES: [&str; 2] = ["validation.operator.knative.dev", "defaulting.operator.knative.dev"];
/// Time limit until the API server uses a changed configuration.
const LIMIT: Duration = knative_operator_tests::wait::LIMIT;

/// Path and expression of the condition that suspends the configuration `name`.
async fn condition(hub: &Cluster, kind: &str, name: &str) -> Result<(String, String)> {
    let found: Value = hub.object(kind, "", name).read().await?;
    let conditions = found["webhooks"][0]["matchConditions"].as_array().ok_or("no conditions")?;
    let index = conditions.iter().position(|c| c["name"] == "rolled-out").ok_or("not suspended")?;
    let expression = conditions[index]["expression"].as_str().ok_or("no expression")?.to_owned();
    Ok((format!("/webhooks/0/matchConditions/{index}/expression"), expression))
}

/// The time in `expression`.
fn until(expression: &str) -> Result<Timestamp> {
    let (_, rest) = expression.rsplit_once("timestamp('").ok_or("no time")?;
    Ok(rest.split('\'').next().unwrap_or_default().parse()?)
}

/// Makes the suspension end at `time`.
async fn end_at(hub: &Cluster, time: Timestamp) -> Result<()> {
    for (kind, name) in KINDS.into_iter().zip(NAMES) {
        let (path, expression) = condition(hub, kind, name).await?;
        let changed = expression.replace(&until(&expression)?.to_string(), &time.to_string());
        let patch = json!([{"op": "replace", "path": path, "value": changed}]).to_string();
        hub.kubectl(&["patch", kind, name, "--type=json", "-p", &patch], "").await?;
    }
    Ok(())
}

/// Tries to create and to change a resource in the namespace `elsewhere`, each as a dry run;
/// returns why each was refused.
async fn refusals(hub: &Cluster) -> Vec<Option<String>> {
    let new = resource(Component::Serving, "elsewhere", "new", Some("unknown"), nothing_to_install()).to_string();
    let patch = json!({"spec": {"high-availability": {"replicas": 3}}}).to_string();
    let change = ["patch", "knativeserving", "elsewhere", "-n", "elsewhere", "--type=merge", "-p", &patch];
    let mut all = Vec::new();
    for (line, stdin) in [
        (&["create", "-f", "-"][..], new.as_str()),
        (&["apply", "--server-side", "-f", "-"][..], new.as_str()),
        (&change[..], ""),
    ] {
        let (is_admitted, output) = hub.kubectl_output(&[line, &["--dry-run=server"]].concat(), stdin).await;
        all.push((!is_admitted).then_some(output));
    }
    all
}

/// Waits until all requests of [`refusals`] are admitted, or all are refused.
async fn wait_until_refused(hub: &Cluster, is_refused: bool) -> Result<()> {
    let started = Instant::now();
    loop {
        let found = refusals(hub).await;
        if found.iter().all(|refusal| refusal.is_some() == is_refused) {
            for refusal in found.into_iter().flatten() {
                assert!(refusal.contains("failed calling webhook"), "{refusal}");
            }
            return Ok(());
        }
        // Polled: nothing reports when an API server uses a changed configuration.
        assert!(started.elapsed() < LIMIT, "refused: {is_refused}, but {found:#?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Checks that `hub`, whose webhook doesn't run, admits changes while the webhooks are suspended,
/// and refuses them from the time in the condition on. Leaves the configurations as they were.
pub async fn ends_by_itself(hub: &Cluster) -> Result<()> {
    let (_, expression) = condition(hub, KINDS[0], NAMES[0]).await?;
    let (end, now) = (until(&expression)?, Timestamp::now());
    let remaining = end.duration_since(now);
    assert!(
        remaining > SignedDuration::from_mins(10) && remaining < SignedDuration::from_mins(16),
        "{now}: {expression}"
    );
    wait_until_refused(hub, false).await?;
    end_at(hub, now - SignedDuration::from_mins(1)).await?;
    wait_until_refused(hub, true).await?;
    end_at(hub, end).await?;
    wait_until_refused(hub, false).await
}
