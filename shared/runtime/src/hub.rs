//! Client of the hub, the cluster that the process runs in.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::header::USER_AGENT;
use http::{HeaderValue, Request};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::timeout::TimeoutLayer;
use tower::{BoxError, ServiceBuilder};

use crate::gate::{Gate, GatedBody};
use crate::identity::user_agent;

/// Time limit of response headers: longer than the timeouts of admission webhooks.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// Time limit of a connection attempt.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle time before the kernel probes a connection, the interval of probes, and their number. A
/// connection whose packets are dropped silently ends within the sum, and its watch continues on
/// another one.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);
/// Time after which a connection ends whose peer doesn't acknowledge what was sent.
const USER_TIMEOUT: Duration = Duration::from_secs(20);
/// Time after which an unused connection is closed: one whose packets are dropped silently would
/// let the next request wait.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

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
        self.client_with(program, RESPONSE_TIMEOUT, None).await
    }

    /// The same with connections of its own, a time limit of response headers, and a condition for
    /// requests with a body.
    pub async fn client_with(&self, program: &str, limit: Duration, gate: Option<Gate>) -> Result<Client, HubError> {
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
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        client(config, limit, gate).map_err(HubError::Client)
    }
}

/// A client with a time limit of response headers, whose connections are probed.
fn client(config: Config, limit: Duration, gate: Option<Gate>) -> kube::Result<Client> {
    if config.proxy_url.is_some() {
        return Ok(ClientBuilder::try_from(config)?.with_layer(&TimeoutLayer::new(limit)).build());
    }
    let connector = config.rustls_https_connector_with_connector(tcp())?;
    let http = HttpClient::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_timer(TokioTimer::new())
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(TimeoutLayer::new(limit))
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .map_request(move |request: Request<Body>| request.map(|body| GatedBody::new(body, gate.clone())))
        .service(http);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

/// Connects, and probes idle connections. Others may do the same for their connections.
pub fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let (idle, interval, retries) = KEEPALIVE;
    tcp.set_keepalive(Some(idle));
    tcp.set_keepalive_interval(Some(interval));
    tcp.set_keepalive_retries(Some(retries));
    tcp.set_tcp_user_timeout(Some(USER_TIMEOUT));
    tcp
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
        let client = client(Config::new(url.parse().unwrap()), Duration::from_millis(50), None).unwrap();
        let error = client.apiserver_version().await.unwrap_err();
        assert!(crate::error_text(&error).contains("timed out"), "{error}");
    }
}
