//! The HTTP stack of one spoke: HTTP/2 where the server speaks it, one connection for watches and one for requests,
//! pings that notice a silent death, time limits, the credential, and one more try after a 401.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::AUTHORIZATION;
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use knative_operator_shared::reason::Reason;
use kube::client::{Body, ConfigExt};
use kube::{Client, Config};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::ServerName;
use rustls::pki_types::pem::PemObject;
use secrecy::{ExposeSecret, SecretString};

use super::credential::{Held, Keeper};
use super::profile::Access;
use super::{Unresolved, exec};

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(5);
/// How long the head of an answer may take.
const HEAD: Duration = Duration::from_secs(10);
/// How often a connection is pinged, and how long it may take to answer.
const PING: Duration = Duration::from_secs(5);

type Http = HttpClient<HttpsConnector<HttpConnector>, Body>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The HTTP stack of one spoke. Clones share it.
#[derive(Clone)]
struct Stack {
    server: Uri,
    requests: Http,
    watches: Http,
    keeper: Arc<Keeper>,
}

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The credential is stale and the plugin gives no other.
    #[error(transparent)]
    Credential(#[from] Unresolved),
    /// The server could not be reached, or went away.
    #[error("the API server can't be reached")]
    Http(#[from] hyper_util::client::legacy::Error),
    /// The server said nothing in time.
    #[error("the API server did not answer within {HEAD:?}")]
    Silent,
    /// The URL and the path don't fit.
    #[error("no such URL")]
    Uri(#[from] http::Error),
}

/// A client for the spoke that `access` describes, with the credential of `keeper`.
pub async fn client(access: &Access, keeper: Arc<Keeper>) -> Result<Client, Unresolved> {
    let failed = |why: String| Unresolved::new(Reason::RemoteClientCreationFailed, format!("no client for {}: {why}", access.server));
    let mut config = Config::new(access.server.clone());
    config.accept_invalid_certs = access.insecure;
    if let Some(authority) = &access.authority {
        let certificates: Vec<Vec<u8>> = CertificateDer::pem_slice_iter(authority)
            .map(|c| c.map(|c| c.to_vec()))
            .collect::<Result<_, _>>()
            .map_err(|e| failed(format!("certificate-authority-data holds no PEM certificates: {e}")))?;
        if certificates.is_empty() {
            return Err(failed("certificate-authority-data holds no PEM certificate".to_owned()));
        }
        config.root_cert = Some(certificates);
    }
    if let Some((certificate, key)) = &keeper.current().await?.credential.identity {
        config.auth_info.client_certificate_data = Some(exec::base64(certificate));
        config.auth_info.client_key_data = Some(SecretString::from(exec::base64(key.expose_secret())));
    }
    let tls = config.rustls_client_config().map_err(|e| failed(knative_operator_runtime::chain(&e)))?;
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http();
    let builder = match &access.server_name {
        Some(name) => {
            let name = ServerName::try_from(name.clone()).map_err(|e| failed(format!("tls-server-name \"{name}\": {e}")))?;
            builder.with_server_name_resolver(FixedServerNameResolver::new(name))
        }
        None => builder,
    };
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    let connector = builder.enable_http1().enable_http2().wrap_connector(tcp);
    let http = || {
        HttpClient::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_max_idle_per_host(2)
            .http2_keep_alive_interval(PING)
            .http2_keep_alive_timeout(PING)
            .http2_keep_alive_while_idle(true)
            .build(connector.clone())
    };
    Ok(Client::new(Stack { server: access.server.clone(), requests: http(), watches: http(), keeper }, "default"))
}

impl tower::Service<Request<Body>> for Stack {
    type Response = Response<Incoming>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let stack = self.clone();
        Box::pin(async move { stack.send(request).await.map_err(Into::into) })
    }
}

impl Stack {
    async fn send(&self, request: Request<Body>) -> Result<Response<Incoming>, TransportError> {
        let (mut parts, body) = request.into_parts();
        parts.uri = join(&self.server, &parts.uri)?;
        let watch = parts.uri.query().is_some_and(|q| q.split('&').any(|p| p == "watch=true" || p == "watch=1"));
        let http = if watch { &self.watches } else { &self.requests };
        let again = body.try_clone();
        let held = self.keeper.current().await?;
        let answer = once(http, &parts, body, &held).await?;
        match again {
            Some(body) if answer.status() == StatusCode::UNAUTHORIZED => {
                let fresh = self.keeper.newer_than(&held).await?;
                once(http, &parts, body, &fresh).await
            }
            _ => Ok(answer),
        }
    }
}

async fn once(http: &Http, parts: &http::request::Parts, body: Body, held: &Held) -> Result<Response<Incoming>, TransportError> {
    let mut request = Request::from_parts(parts.clone(), body);
    if let Some(header) = held.authorization() {
        request.headers_mut().insert(AUTHORIZATION, header);
    }
    tokio::time::timeout(HEAD, http.request(request)).await.map_err(|_| TransportError::Silent)?.map_err(Into::into)
}

/// `path` below `server`, whose own path comes first.
fn join(server: &Uri, path: &Uri) -> Result<Uri, http::Error> {
    let mut parts = server.clone().into_parts();
    let below = path.path_and_query().map_or("/", PathAndQuery::as_str);
    parts.path_and_query = Some(format!("{}{below}", server.path().trim_end_matches('/')).parse()?);
    Ok(Uri::from_parts(parts)?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_server_may_have_a_path() {
        let join = |server: &str, path: &str| super::join(&server.parse().unwrap(), &path.parse().unwrap()).unwrap().to_string();
        assert_eq!(join("https://h:6443", "/api/v1/pods?watch=true"), "https://h:6443/api/v1/pods?watch=true");
        assert_eq!(join("https://h/k8s/c-1/", "/version"), "https://h/k8s/c-1/version");
    }
}
