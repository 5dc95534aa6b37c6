//! Waits that end whether an attack succeeds or not, and the removal of what it left.

use knative_operator_shared::api::KnativeStatus;
use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use serde_json::Value;

use crate::support::{INSTALL, condition, confirm, status};

/// Whether everything is installed.
pub fn is_ready(status: &KnativeStatus) -> bool {
    condition(status, "Ready").is_some_and(|ready| ready.status == "True")
}

/// Whether the operator doesn't want to install. A failure is not that, and neither is the
/// namespace of a former owner, which is going: the operator tries again.
fn is_refused(status: &KnativeStatus) -> bool {
    let is_final = |reason: Option<&str>| !matches!(reason, Some("Error" | "NamespaceTerminating"));
    let installed = condition(status, "InstallSucceeded");
    installed.is_some_and(|c| c.status == "False" && is_final(c.reason.as_deref()))
}

/// Waits until the current spec of `resource` is installed, or refused by the operator.
pub async fn settled(hub: &Cluster, resource: &Value) -> Result<KnativeStatus> {
    let text = |path: &str| resource.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (kind, name, namespace) = (text("/kind"), text("/metadata/name"), text("/metadata/namespace"));
    let arguments = ["get", kind, name, "-n", namespace, "-o", "jsonpath={.metadata.generation}"];
    let generation: i64 = hub.kubectl(&arguments, "").await?.trim().parse()?;
    let is_settled = |s: &KnativeStatus| s.observed_generation == Some(generation) && (is_ready(s) || is_refused(s));
    status(hub, resource, INSTALL, "installed or refused", is_settled).await
}

/// Deletes `resource` as an administrator, if it exists, and waits until it is gone.
pub async fn remove(cluster: &Cluster, resource: &Value) -> Result<()> {
    if resource["kind"] == "KnativeFleet" {
        let name = resource["metadata"]["name"].as_str().unwrap_or_default();
        // It may not exist.
        let _ = confirm(cluster, resource["metadata"]["namespace"].as_str().unwrap_or_default(), name).await;
    }
    cluster.remove(resource).await.map(drop)
}
