//! The life of an installation: what hubs, spokes and operators go through, and nothing is lost,
//! left behind or changed unasked.

mod certificates;
mod chart;
mod clusters;
mod definitions;
mod document;
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

use k8s_openapi::api::events::v1::Event;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, FLEET, Product};
use knative_operator_tests::releases::Releases;
use knative_operator_tests::{Result, wait};
use kube::Api;

use crate::support::{INSTALL, namespace};

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

/// Waits for an event with `reason` whose note has `part`.
async fn event(hub: &Cluster, reason: &str, part: &str) -> Result<()> {
    let events: Api<Event> = Api::namespaced(hub.client(), TEAM);
    let is_it = |event: &Event| {
        event.reason.as_deref() == Some(reason) && event.note.as_deref().unwrap_or_default().contains(part)
    };
    wait::until_all(&events, "", INSTALL, reason, |all| all.iter().any(is_it)).await.map(drop)
}

/// Lets the Secret of ClusterProfile `name` be used for ClusterProfile `other` as well.
async fn share_secret(hub: &Cluster, name: &str, other: &str) -> Result<()> {
    let both = format!("operator.knative.dev/cluster-profile={FLEET}/{name},{FLEET}/{other}");
    let line = ["annotate", "--overwrite", "secret", name, "-n", product::NAMESPACE, &both];
    hub.kubectl(&line, "").await.map(drop)
}
