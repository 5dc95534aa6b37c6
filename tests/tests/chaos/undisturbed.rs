//! What a cluster without faults has.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::try_join_all;
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::{Result, product};
use tokio::sync::Mutex;

use super::config::Config;
use super::site::{State, contents, create_namespaces, is_ready, objects};
use super::world::CONVERGENCE;

/// Interval of reads.
const INTERVAL: Duration = Duration::from_millis(200);

/// A spoke without faults for each component: all worlds share them.
pub struct Undisturbed {
    hub: Arc<Cluster>,
    clusters: Vec<(Cluster, Mutex<HashMap<Config, State>>)>,
}

impl Undisturbed {
    /// Starts the spokes.
    pub async fn spokes() -> Result<Vec<Cluster>> {
        try_join_all(["calm-serving", "calm-eventing"].map(Cluster::spoke)).await
    }

    /// Registers `spokes` with `hub`.
    pub async fn register(hub: &Arc<Cluster>, spokes: Vec<Cluster>) -> Result<Self> {
        let register = spokes.iter().map(async |spoke| {
            product::register(hub, spoke, spoke.name()).await?;
            create_namespaces(spoke, &Component::ALL.map(Component::canonical)).await?;
            create_namespaces(hub, &[spoke.name()]).await
        });
        try_join_all(register).await?;
        let clusters = spokes.into_iter().map(|spoke| (spoke, Mutex::default())).collect();
        Ok(Self { hub: hub.clone(), clusters })
    }

    /// Installs each configuration once, before it is asked for.
    pub async fn prepare(&self) -> Result<()> {
        for config in Config::all() {
            self.expected(config).await?;
        }
        Ok(())
    }

    /// The objects of a cluster with `config`.
    pub async fn expected(&self, config: Config) -> Result<State> {
        let (cluster, known) = &self.clusters[usize::from(config.component == Component::Eventing)];
        let mut known = known.lock().await;
        if let Some(state) = known.get(&config) {
            return Ok(state.clone());
        }
        let name = cluster.name();
        self.hub.kubectl(&["apply", "-f", "-"], &config.resource(name, "one", name).to_string()).await?;
        let deadline = Instant::now() + CONVERGENCE;
        while !is_ready(&self.hub, config.component.plural(), name, "one", config.version).await? {
            assert!(Instant::now() < deadline, "{config:?} is not installed on {name}");
            tokio::time::sleep(INTERVAL).await;
        }
        // Until the Jobs that remove earlier objects are complete.
        let mut state = contents(&objects(cluster).await?);
        loop {
            tokio::time::sleep(INTERVAL * 4).await;
            let next = contents(&objects(cluster).await?);
            if next == state {
                break;
            }
            assert!(Instant::now() < deadline, "{config:?} does not come to rest on {name}");
            state = next;
        }
        known.insert(config, state.clone());
        Ok(state)
    }
}
