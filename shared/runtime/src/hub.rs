//! Client of the hub, the cluster that the process runs in.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::timeout::TimeoutLayer;

use crate::identity::user_agent;

/// Time limit of response headers: longer than the timeouts of admission webhooks.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);

/// Flags of the connection to the hub.
#[derive(Args, Clone, Debug)]
pub struct HubArgs {
    /// Path of a kubeconfig. Defaults to the ServiceAccount of the Pod.
    #[arg(long, env = "KUBECONFIG")]
    kubeconfig: Option<PathBuf>,
}

/// Why the client can't be built.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The kubeconfig is invalid.
    #[error("cannot use kubeconfig {path}")]
    Kubeconfig {
        /// Its path.
        path: PathBuf,
        /// Its error.
        source: kube::config::KubeconfigError,
    },
    /// There is no ServiceAccount.
    #[error("not in a Pod; set --kubeconfig")]
    InCluster(#[source] kube::config::InClusterError),
    /// The settings are not valid for a client.
    #[error("cannot build a client for the API server")]
    Client(#[source] kube::Error),
}

impl HubArgs {
    /// A client for `program` with timeouts. It doesn't retry: callers decide about retries.
    pub async fn client(&self, program: &str) -> Result<Client, HubError> {
        let mut config = match &self.kubeconfig {
            Some(path) if !path.as_os_str().is_empty() => {
                let failed = |source| HubError::Kubeconfig { path: path.clone(), source };
                let kubeconfig = Kubeconfig::read_from(path).map_err(failed)?;
                Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.map_err(failed)?
            }
            _ => Config::incluster().map_err(HubError::InCluster)?,
        };
        config.default_retry = false;
        // Name and version of the program are ASCII.
        config.headers.extend(HeaderValue::from_str(&user_agent(program)).ok().map(|agent| (USER_AGENT, agent)));
        config.connect_timeout = Some(Duration::from_secs(5));
        client(config, RESPONSE_TIMEOUT).map_err(HubError::Client)
    }
}

/// A client with a time limit of response headers.
fn client(config: Config, limit: Duration) -> kube::Result<Client> {
    Ok(ClientBuilder::try_from(config)?.with_layer(&TimeoutLayer::new(limit)).build())
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn server_without_response_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        // Connections are accepted by the kernel, and nobody reads.
        let client = client(Config::new(url.parse().unwrap()), Duration::from_millis(50)).unwrap();
        let error = client.apiserver_version().await.unwrap_err();
        assert!(crate::error_text(&error).contains("timed out"), "{error}");
    }
}
