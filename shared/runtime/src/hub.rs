//! Client of the hub, the cluster that the process runs in.

use std::error::Error;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::header::USER_AGENT;
use http::{HeaderValue, Request};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use knative_operator_client::tcp::{CONNECT_TIMEOUT, tcp};
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::timeout::TimeoutLayer;
use tower::util::MapErrLayer;
use tower::{BoxError, ServiceBuilder};

use crate::body::MAX_DURATION;
use crate::connect_error::{self, OF_POD, explained, unusable};
use crate::deadline::BodyDeadline;
use crate::gate::{Gate, GatedBody};
use crate::identity::user_agent;

/// Time limit of response headers: longer than the timeouts of admission webhooks.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
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
    /// The kubeconfig, or another setting of the connection, is invalid. The text has no
    /// credentials.
    #[error("{0}")]
    Unusable(String),
    /// There is no ServiceAccount.
    #[error("not in a Pod; set --kubeconfig")]
    InCluster(#[source] kube::config::InClusterError),
}

impl HubArgs {
    /// A client for `program` with timeouts. It doesn't retry: callers decide about retries.
    pub async fn client(&self, program: &str) -> Result<Client, HubError> {
        self.client_with(program, RESPONSE_TIMEOUT, None).await
    }

    /// The same with connections of its own, a time limit of response headers, and a condition for
    /// requests with a body.
    pub async fn client_with(&self, program: &str, limit: Duration, gate: Option<Gate>) -> Result<Client, HubError> {
        let path = self.kubeconfig.as_deref().filter(|path| !path.as_os_str().is_empty());
        let file = path.map(|path| format!("the kubeconfig {}", path.display()));
        let (origin, check) = file.as_deref().map_or(OF_POD, |file| (file, "check the server that it names"));
        let failed = |error: &(dyn Error + 'static)| HubError::Unusable(unusable(origin, error));
        let mut config = match path {
            Some(path) => {
                let kubeconfig = Kubeconfig::read_from(path).map_err(|error| failed(&error))?;
                let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
                config.map_err(|error| failed(&error))?
            }
            None => Config::incluster().map_err(HubError::InCluster)?,
        };
        config.default_retry = false;
        // Name and version of the program are ASCII.
        config.headers.extend(HeaderValue::from_str(&user_agent(program)).ok().map(|agent| (USER_AGENT, agent)));
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        let explain = explained(connect_error::server(&config.cluster_url, origin), check);
        client(config, limit, gate, explain).map_err(|error| failed(&error))
    }
}

/// A client with a time limit of response headers, and one of bodies, whose connections are probed
/// and whose errors `explain` changes.
fn client(
    config: Config,
    limit: Duration,
    gate: Option<Gate>,
    explain: impl Fn(BoxError) -> BoxError + Clone + Send + 'static,
) -> kube::Result<Client> {
    if config.proxy_url.is_some() {
        let builder = ClientBuilder::try_from(config)?.with_layer(&BodyDeadline(MAX_DURATION));
        let builder = builder.with_layer(&TimeoutLayer::new(limit));
        return Ok(builder.with_layer(&MapErrLayer::new(explain)).build());
    }
    let connector = config.rustls_https_connector_with_connector(tcp())?;
    let http = HttpClient::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_timer(TokioTimer::new())
        .build(connector);
    let service = ServiceBuilder::new()
        .map_err(explain)
        .layer(TimeoutLayer::new(limit))
        .layer(BodyDeadline(MAX_DURATION))
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .map_request(move |request: Request<Body>| request.map(|body| GatedBody::new(body, gate.clone())))
        .service(http);
    Ok(ClientBuilder::new(service, config.default_namespace).build())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use tokio::net::TcpListener;

    use super::*;
    use crate::error_text;
    use crate::identity::post_as;

    /// A server, its URL, and a client of it with a time `limit` and a `gate`. Connections are
    /// accepted by the kernel, and nobody reads.
    async fn silent(limit: Duration, gate: Option<Gate>) -> (TcpListener, String, Client) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let config = Config::new(url.parse().unwrap());
        let explain = explained(connect_error::server(&config.cluster_url, "the kubeconfig a"), "check it");
        (listener, url, client(config, limit, gate, explain).unwrap())
    }

    #[tokio::test]
    async fn server_without_response_is_named() {
        let (_listener, url, client) = silent(Duration::from_millis(50), None).await;
        let error = client.apiserver_version().await.unwrap_err();
        let expected = format!("cannot reach the API server {url} (the kubeconfig a): request timed out; check it");
        assert_eq!(error_text(&error), expected);
    }

    #[tokio::test]
    async fn what_is_not_sent_is_no_fault_of_the_server() {
        let (_listener, _, client) = silent(RESPONSE_TIMEOUT, Some(Arc::new(|| false))).await;
        let maps = Api::<ConfigMap>::namespaced(client, "n");
        let error = maps.create(&post_as("test"), &ConfigMap::default()).await.unwrap_err();
        let text = error_text(&error);
        assert!(text.contains("may no longer write") && !text.contains("cannot reach"), "{text}");
    }

    #[tokio::test]
    async fn errors_about_a_kubeconfig_have_no_credentials() {
        crate::install_crypto();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("config");
        let start = format!("cannot use the kubeconfig {}: ", path.display());
        let plugin = r#"{"current-context": "a", "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
            "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}], "users": [{"name": "a",
            "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
            "command": "sh", "args": ["-c", "echo hunter2; exit 3"], "env": [{"name": "A", "value": "hunter2"}]}}}]}"#;
        for (text, why) in [
            ("users:\n- name: a\n  user: {token: hunter2\n", "it can't be parsed"),
            (plugin, "the credential plugin of the kubeconfig failed with exit status: 3; run it to see why"),
        ] {
            std::fs::write(&path, text).unwrap();
            let args = HubArgs { kubeconfig: Some(path.clone()) };
            let text = error_text(&args.client("x").await.map(drop).unwrap_err());
            assert!(text.starts_with(&format!("{start}{why}")) && !text.contains("hunter"), "{text}");
        }
    }
}
