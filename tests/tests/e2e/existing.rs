//! Multi-cluster support is added to an operator that was installed without it, by the patches in
//! `docs/user/multicluster.md`, which are those of Knative's documents.

use knative_operator_shared::api::{Component, KnativeStatus};
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::releases::Releases;
use knative_operator_tests::{Result, tools, wait};

use crate::document::{Shell, blocks, nothing_installed};
use crate::support::{apply, condition, delete, fleet, has_condition, logged, nothing_to_install, resource, status};

/// Runs the patches on `hub`, whose operator is `product`, and uses them for a spoke of the fleet.
pub async fn multicluster_is_added(hub: &Cluster, releases: &Releases, product: Product) -> Result<()> {
    let spoke = &fleet().await?.spokes[2];
    product::register(hub, spoke, "existing").await?;
    let spec = nothing_to_install();
    let asked = resource(Component::Eventing, "knative-serving", "existing", Some("existing"), spec);
    apply(hub, &asked).await?;
    let disabled = "runs without --clusterprofile-provider-file";
    has_condition(hub, &asked, "TargetClusterResolved", "MulticlusterDisabled", disabled).await?;

    let mut shell = Shell::new(&[("hub", hub)], &product::bundled(hub))?;
    let page = std::fs::read_to_string(tools::project().join("docs/user/multicluster.md"))?;
    let patches: Vec<_> = blocks(&page).into_iter().filter(|block| block.heading == "Without Helm").collect();
    assert_eq!(patches.len(), 2, "one adds everything, one repeats a flag");
    for block in &patches {
        shell.run(&block.script, nothing_installed).await?;
    }
    let image = shell.folder().join("secretreader");
    tools::official_plugins(&image)?;
    drop(product);
    let images = [("registry.k8s.io/cluster-inventory-api/secretreader".to_owned(), image)].into();
    let product = Product::start(hub, releases, images).await?;
    // The Deployment has the flag twice: the last one counts, and is logged.
    logged(&product.operator.process, r#""remote_deployments_poll_interval":"30s""#).await?;
    let resolved = |s: &KnativeStatus| condition(s, "TargetClusterResolved").is_some_and(|c| c.status == "True");
    status(hub, &asked, wait::LIMIT, "resolved", resolved).await?;
    delete(hub, &asked).await
}
