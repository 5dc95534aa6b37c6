//! A fleet `prod` of two spokes: a canary, and another cluster.

use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{FLEET, register};
use knative_operator_tests::real::{images, product};
use knative_operator_tests::{Result, tools};
use tokio::process::Command;

use crate::support::NAMESPACE;

/// A hub with the chart, and two spokes, registered as `canary` and `prod`.
pub async fn clusters(name: &str) -> Result<(Cluster, [Cluster; 2])> {
    let registry = images::registry_with_eventing().await?;
    let (hub, canary) = tokio::try_join!(Cluster::real(name, registry), Cluster::real("canary", registry))?;
    let values = product::values();
    let (prod, ()) = tokio::try_join!(Cluster::real("prod", registry), product::install(&hub, &values))?;
    let spokes = [canary, prod];
    for spoke in &spokes {
        hub.connect(spoke)?;
        register(&hub, spoke, spoke.name()).await?;
    }
    hub.kubectl(&["label", "clusterprofile", "canary", "-n", FLEET, "tier=canary"], "").await?;
    hub.kubectl(&["create", "namespace", NAMESPACE], "").await?;
    Ok((hub, spokes))
}

/// What `knative-operator fleet status` prints.
pub async fn status(hub: &Cluster) -> Result<String> {
    let mut command = Command::new(tools::binary("knative-operator")?);
    command.args(["fleet", "status", "prod", "-n", NAMESPACE, "--kubeconfig"]).arg(hub.kubeconfig());
    let output = command.output().await?;
    Ok(String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}
