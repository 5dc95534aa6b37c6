//! The life of an installation: what hubs, spokes and operators go through, and nothing is lost,
//! left behind or changed unasked.

mod certificates;
mod chart;
mod clusters;
mod definitions;
mod document;
mod fleet_bundle;
mod kubernetes;
mod last_release;
mod matrix;
mod quotas;
mod records;
mod restored;
mod restored_fleet;
mod second;
mod versions;

use std::path::Path;

use knative_operator_shared::label::CLUSTER_PROFILE;
use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::releases::Releases;
use serde_json::json;

use crate::support::namespace;

/// Namespace of the resources.
const TEAM: &str = "team";

/// A hub called `name` with the product, and a ClusterProfile for each of `spokes`, with its name.
async fn hub(
    name: &str,
    releases: &Releases,
    plugins: &Path,
    spokes: &[(&str, &Cluster)],
) -> Result<(Cluster, Product)> {
    let hub = Cluster::hub(name).await?;
    let product = Product::install(&hub, releases, product::values(&[]), plugins).await?;
    for (name, spoke) in spokes {
        product::register(&hub, spoke, name).await?;
    }
    namespace(&hub, TEAM).await?;
    Ok((hub, product))
}

/// Lets the Secret of ClusterProfile `name` be used for ClusterProfile `other` as well.
async fn share_secret(hub: &Cluster, name: &str, other: &str) -> Result<()> {
    let both = format!("{FLEET}/{name},{FLEET}/{other}");
    hub.object("secret", product::NAMESPACE, name).annotate(&json!({CLUSTER_PROFILE: both})).await
}
