//! The client for the cluster that the process runs in.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::identity::user_agent;

/// Flags for the hub.
#[derive(Args, Clone, Debug)]
pub struct HubArgs {
    /// Path of a kubeconfig. Left out: the Pod's ServiceAccount.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
}

/// Why there is no client.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The kubeconfig is of no use.
    #[error("kubeconfig {path} can't be used")]
    Kubeconfig {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: kube::config::KubeconfigError,
    },
    /// There is no ServiceAccount.
    #[error("not in a Pod, and no --kubeconfig given")]
    InCluster(#[source] kube::config::InClusterError),
    /// The client can't be built.
    #[error("no client can be built for the API server")]
    Client(#[source] kube::Error),
}

impl HubArgs {
    /// A client for `program`, with time limits and without hidden retries: retrying is its callers' decision.
    pub async fn client(&self, program: &str) -> Result<Client, HubError> {
        let mut config = match &self.kubeconfig {
            Some(path) if !path.as_os_str().is_empty() => {
                let broken = |source| HubError::Kubeconfig { path: path.clone(), source };
                let kubeconfig = Kubeconfig::read_from(path).map_err(broken)?;
                Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(broken)?
            }
            _ => Config::incluster().map_err(HubError::InCluster)?,
        };
        config.default_retry = false;
        // A program's name and version are plain ASCII.
        config.headers.extend(HeaderValue::from_str(&user_agent(program)).ok().map(|agent| (USER_AGENT, agent)));
        config.connect_timeout = Some(Duration::from_secs(5));
        Client::try_from(config).map_err(HubError::Client)
    }
}
