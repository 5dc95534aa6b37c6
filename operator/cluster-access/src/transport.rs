//! The HTTP client of one spoke: HTTP/2 if the server speaks it, one connection for watches and one
//! for requests, pings, timeouts, credentials, and one retry after a 401. Requests to Services
//! behind the API server have connections of their own, over HTTP/1.1, which are closed when idle.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::task::{Context, Poll};
use std::time::Duration;

use arc_swap::ArcSwap;
use http::HeaderValue;
use http::header::{AUTHORIZATION, USER_AGENT};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use knative_operator_client::body::{Arriving, LimitedBody, MAX_LENGTH, MAX_PROBE_LENGTH};
use knative_operator_client::gate::{self, Closed, Gate, GatedBody};
use knative_operator_client::identity::user_agent;
use kube::Client;
use kube::client::Body;
use secrecy::ExposeSecret;
use tracing::{Instrument, Span};

use super::connector::{SpokeConnector, is_http2_unsupported};
use super::credential::{CachedCredential, CredentialCache};
use super::error::AccessError;
use super::pings::{self, Turns};
use super::profile::Access;
use super::tls;
use knative_operator_client::deadline::is_watch;

/// Time limit of response headers: longer than the timeouts of admission webhooks.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(30);
/// The same of a Service behind the API server, which is slow at its start. The caller has a time
/// limit of its own.
const SERVICE_TIMEOUT: Duration = Duration::from_secs(86_400);
/// Idle time after which the connection for requests is closed. The one for watches has no such
/// limit: its watches would keep it open, and the next watch would need another connection.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

/// Extension of a request to a Service behind the API server (its proxy). It is sent over HTTP/1.1:
/// the API server passes its header `Host` on, which in HTTP/2 is the host of the API server.
#[derive(Clone, Copy, Debug)]
pub struct ToService;

/// Extension of the request that checks a spoke: it is not sent again with a new credential after a
/// 401, and its response is short.
#[derive(Clone, Copy, Debug)]
pub struct Probe;

type Http = HttpClient<SpokeConnector, GatedBody>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The HTTP client of one spoke, a [`tower::Service`]. Clones share its connections.
#[derive(Clone)]
pub struct SpokeService {
    access: Arc<Access>,
    credentials: Arc<CredentialCache>,
    gate: Gate,
    /// When pings are due.
    turns: Turns,
    pools: Arc<ArcSwap<ConnectionPools>>,
    arriving: Arriving,
}

/// Connections to one spoke, apart from each other, so that a burst of writes delays no watch
/// event.
struct ConnectionPools {
    requests: Http,
    watches: Http,
    services: Http,
    http2: bool,
    /// The client certificate of the connections, in PEM.
    certificate: Option<String>,
}

/// Why a request got no response.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The credential is stale, and the provider returns no usable one.
    #[error(transparent)]
    Credential(#[from] AccessError),
    /// The server is unreachable, or closed the connection.
    #[error("cannot reach the API server")]
    Http(#[from] hyper_util::client::legacy::Error),
    /// The server did not respond in time.
    #[error("the API server did not answer within {RESPONSE_TIMEOUT:?}")]
    TimedOut,
    /// The program may no longer write.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// The URL and the path are not compatible.
    #[error("invalid URL")]
    Uri(#[from] http::Error),
}

impl SpokeService {
    /// A client for the spoke of `access`, one of this many `spokes`, with `credentials`; each
    /// write is sent if `gate` holds at that time. Connects on first use.
    pub async fn new(
        access: Arc<Access>,
        credentials: Arc<CredentialCache>,
        gate: Gate,
        spokes: Arc<AtomicUsize>,
    ) -> Result<Self, AccessError> {
        let cached = credentials.current().await?;
        let turns = Turns::new(spokes);
        let pools = Arc::new(ArcSwap::from_pointee(pools(&access, &cached, (true, &turns))?));
        Ok(Self { access, credentials, gate, turns, pools, arriving: Arriving::default() })
    }

    /// A client that uses it.
    pub fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// Drops the connections; the next request opens a new connection, over HTTP/2 or HTTP/1.1.
    pub async fn reconnect(&self, http2: bool) -> Result<(), AccessError> {
        let cached = self.credentials.current().await?;
        self.pools.store(Arc::new(pools(&self.access, &cached, (http2, &self.turns))?));
        Ok(())
    }

    /// Whether `error` means that the server doesn't speak the current protocol.
    pub fn is_protocol_mismatch(&self, error: &kube::Error) -> bool {
        self.pools.load().http2 && is_http2_unsupported(error)
    }

    /// The pools for `cached`: new ones if its client certificate changed.
    fn pools(&self, cached: &CachedCredential) -> Result<Arc<ConnectionPools>, AccessError> {
        let current = self.pools.load_full();
        let certificate = cached.credential.identity.as_ref().map(|(certificate, _)| certificate);
        if current.certificate.as_ref() == certificate {
            return Ok(current);
        }
        let fresh = Arc::new(pools(&self.access, cached, (current.http2, &self.turns))?);
        self.pools.store(Arc::clone(&fresh));
        Ok(fresh)
    }

    async fn send_once(
        &self,
        pools: &ConnectionPools,
        watch: bool,
        parts: &http::request::Parts,
        body: Body,
        cached: &CachedCredential,
    ) -> Result<Response<Incoming>, TransportError> {
        let mut request = Request::from_parts(parts.clone(), GatedBody::new(body, Some(Arc::clone(&self.gate))));
        // A name that is not ASCII is none.
        request.headers_mut().extend(
            HeaderValue::from_str(&user_agent(self.credentials.program())).ok().map(|agent| (USER_AGENT, agent)),
        );
        if let Some(header) = cached.authorization() {
            request.headers_mut().insert(AUTHORIZATION, header);
        }
        // Here, since the credential may have taken long. The connection may, too: it asks for the
        // body when it can send it.
        gate::check(&request, &self.gate)?;
        let (http, limit) = match parts.extensions.get::<ToService>() {
            Some(ToService) => (&pools.services, SERVICE_TIMEOUT),
            None if watch => (&pools.watches, RESPONSE_TIMEOUT),
            None => (&pools.requests, RESPONSE_TIMEOUT),
        };
        tokio::time::timeout(limit, http.request(request))
            .await
            .map_err(|_| TransportError::TimedOut)?
            .map_err(Into::into)
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<LimitedBody>, TransportError> {
        let (mut parts, body) = request.into_parts();
        parts.uri = join(&self.access.server, &parts.uri)?;
        let watch = is_watch(&parts.uri);
        let is_probe = parts.extensions.get::<Probe>().is_some();
        // A 401 of a Service says nothing about the credential.
        let retries = parts.extensions.get::<ToService>().is_none() && !is_probe;
        let retry = body.try_clone().filter(|_| retries);
        let cached = self.credentials.current().await?;
        let response = self.send_once(&*self.pools(&cached)?, watch, &parts, body, &cached).await?;
        let (response, cached) = match retry {
            Some(body) if response.status() == StatusCode::UNAUTHORIZED => {
                let fresh = self.credentials.newer_than(&cached).await?;
                if Arc::ptr_eq(&fresh, &cached) {
                    (response, cached)
                } else {
                    (self.send_once(&*self.pools(&fresh)?, watch, &parts, body, &fresh).await?, fresh)
                }
            }
            _ => (response, cached),
        };
        let (parts, body) = response.into_parts();
        let body = if parts.status.is_success() {
            let most = if is_probe { MAX_PROBE_LENGTH } else { MAX_LENGTH };
            LimitedBody::new(body, watch, most, &self.arriving)
        } else {
            LimitedBody::error(body, cached.credential.token.as_ref().map(ExposeSecret::expose_secret)).await
        };
        Ok(Response::from_parts(parts, body))
    }
}

impl tower::Service<Request<Body>> for SpokeService {
    type Response = Response<LimitedBody>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let service = self.clone();
        let span = tracing::debug_span!(
            "request",
            otel.kind = "client",
            http.request.method = %request.method(),
            url.path = request.uri().path(),
            http.response.status_code = tracing::field::Empty,
        );
        let send = async move {
            let outcome = service.send(request).await;
            if let Ok(response) = &outcome {
                Span::current().record("http.response.status_code", response.status().as_u16());
            }
            outcome.map_err(Into::into)
        };
        Box::pin(send.instrument(span))
    }
}

/// Connections whose pings are due in `turns`, over HTTP/2 or HTTP/1.1.
fn pools(
    access: &Access,
    cached: &CachedCredential,
    (http2, turns): (bool, &Turns),
) -> Result<ConnectionPools, AccessError> {
    let (config, name) = tls::config(access, cached.credential.identity.as_ref())?;
    let http = |idle: Option<Duration>, http2: bool| {
        HttpClient::builder(TokioExecutor::new())
            .timer(turns.clone())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(idle)
            .pool_max_idle_per_host(2)
            .http2_only(http2)
            .http2_keep_alive_interval(pings::INTERVAL)
            .http2_keep_alive_timeout(pings::TIMEOUT)
            .http2_keep_alive_while_idle(true)
            .build(SpokeConnector::new(&config, name.clone(), access.proxy.as_ref(), (http2, access.is_unencrypted())))
    };
    let certificate = cached.credential.identity.as_ref().map(|(certificate, _)| certificate.clone());
    let (requests, watches) = (http(Some(IDLE_TIMEOUT), http2), http(None, http2));
    let services = http(Some(IDLE_TIMEOUT), false);
    Ok(ConnectionPools { requests, watches, services, http2, certificate })
}

/// Appends `path` to the URL of `server`, which may have a path itself.
fn join(server: &Uri, path: &Uri) -> Result<Uri, http::Error> {
    let mut parts = server.clone().into_parts();
    let below = path.path_and_query().map_or("/", PathAndQuery::as_str);
    parts.path_and_query = Some(format!("{}{below}", server.path().trim_end_matches('/')).parse()?);
    Ok(Uri::from_parts(parts)?)
}

#[cfg(test)]
mod tests {
    #[test]
    fn server_path_is_prefix() {
        let join = |server: &str, path: &str| {
            super::join(&server.parse().unwrap(), &path.parse().unwrap()).unwrap().to_string()
        };
        assert_eq!(join("https://h:6443", "/api/v1/pods?watch=true"), "https://h:6443/api/v1/pods?watch=true");
        assert_eq!(join("https://h/k8s/c-1/", "/version"), "https://h/k8s/c-1/version");
    }
}
