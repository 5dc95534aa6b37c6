//! A fleet `prod` of a canary and the hub itself.

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{FLEET, register};
use knative_operator_tests::real::{images, product};
use knative_operator_tests::{Result, tools};
use tokio::process::Command;

use crate::support::NAMESPACE;

/// A hub with the chart and the canary, registered as `canary` and, the hub itself, as `prod`.
pub async fn clusters(name: &str) -> Result<(Cluster, Cluster)> {
    let registry = images::registry().await?;
    let (hub, spoke) = tokio::try_join!(Cluster::real(name, registry), Cluster::real("canary", registry))?;
    hub.connect(&spoke)?;
    product::install(&hub, &product::values()).await?;
    register(&hub, &spoke, "canary").await?;
    register(&hub, &hub, "prod").await?;
    hub.kubectl(&["label", "clusterprofile", "canary", "-n", FLEET, "tier=canary"], "").await?;
    hub.kubectl(&["create", "namespace", NAMESPACE], "").await?;
    Ok((hub, spoke))
}

/// What `knative-operator fleet status` prints.
pub async fn status(hub: &Cluster) -> Result<String> {
    let mut command = Command::new(tools::binary("knative-operator")?);
    command.args(["fleet", "status", "prod", "-n", NAMESPACE, "--kubeconfig"]).arg(hub.kubeconfig());
    let output = command.output().await?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}
