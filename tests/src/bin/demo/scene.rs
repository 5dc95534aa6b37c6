//! The clusters of the demo: with real nodes, on which Pods run in containers, or simulated ones.

use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::real;
use knative_operator_tests::registry::Registry;
use knative_operator_tests::releases::Releases;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A hub and two spokes.
pub struct Scene {
    /// The hub.
    pub hub: Cluster,
    /// A spoke.
    pub spoke: Cluster,
    /// Another one.
    pub other: Cluster,
    /// Whether their nodes are real.
    pub real: bool,
}

/// What runs the chart's Pods as long as it lives.
pub struct Installed {
    _simulated: Option<(Product, TempDir)>,
    /// How they run.
    pub pods: &'static str,
}

/// Whether real nodes are wanted, and this machine can have them; says so if it can't.
pub fn real_nodes() -> bool {
    if std::env::var_os("REAL_NODES").is_none_or(|wanted| wanted.is_empty()) {
        return false;
    }
    let obstacle = real::obstacle();
    if let Some(obstacle) = &obstacle {
        println!("no real nodes: {obstacle}; KWOK simulates nodes and Pods");
    }
    obstacle.is_none()
}

impl Scene {
    /// Starts the clusters; those with real nodes pull images from `registry`.
    pub async fn start(registry: Option<&'static Registry>) -> Result<Self> {
        let (hub, spoke, other) = match registry {
            None => tokio::try_join!(Cluster::hub("hub"), Cluster::spoke("spoke"), Cluster::spoke("other"))?,
            Some(registry) => {
                let clusters = tokio::try_join!(
                    Cluster::real("hub", registry),
                    Cluster::real("spoke", registry),
                    Cluster::real("other", registry)
                )?;
                clusters.0.connect(&clusters.1)?;
                clusters.0.connect(&clusters.2)?;
                clusters
            }
        };
        Ok(Self { hub, spoke, other, real: registry.is_some() })
    }

    /// Installs the chart on the hub, until its Pods are ready.
    pub async fn install(&self, releases: &Releases) -> Result<Installed> {
        if self.real {
            real::product::install(&self.hub, &real::product::values()).await?;
            return Ok(Installed { _simulated: None, pods: "Pods on a real node" });
        }
        let plugins = tempfile::tempdir()?;
        let mut values = product::values(&[]);
        values["knative_operator"]["fleet"] = json!({"enabled": true});
        let product = Product::install(&self.hub, releases, values, plugins.path()).await?;
        let (image, process) = ("containers, from images that make built", "processes, without images");
        let pods = if product.operator.contained { image } else { process };
        Ok(Installed { _simulated: Some((product, plugins)), pods })
    }

    /// The spec of a KnativeServing of `version` with Kourier. Real nodes pull its images from the
    /// registry of the demo, as in a network without internet.
    pub fn serving(&self, version: &str) -> Value {
        if self.real {
            return real::product::serving(version);
        }
        let network = json!({"ingress-class": "kourier.ingress.networking.knative.dev"});
        json!({"version": version, "ingress": {"kourier": {"enabled": true}}, "config": {"network": network}})
    }
}
