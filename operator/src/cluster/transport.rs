//! The HTTP stack of one spoke: HTTP/2 where the server speaks it, one connection for watches and one for requests,
//! pings that notice a silent death, time limits, the credential, and one more try after a 401.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
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
use knative_operator_runtime::identity::user_agent;
use knative_operator_shared::label::FIELD_MANAGER;
use kube::Client;
use kube::client::Body;
use secrecy::ExposeSecret;

use super::body::Bounded;
use super::credential::{Held, Keeper};
use super::profile::Access;
use super::road::{Road, is_no_http2};
use super::{Unresolved, tls};

/// How long the head of an answer may take: longer than the webhooks that an API server may have to ask first.
const HEAD: Duration = Duration::from_secs(30);
/// How often a connection is pinged, and how long it may take to answer.
const PING: Duration = Duration::from_secs(5);
const PONG: Duration = Duration::from_secs(3);
/// How long the connection for requests is kept when there are none. That for watches is never let go by itself: the watches on it would keep it
/// open, and the next one would need another.
const IDLE: Duration = Duration::from_secs(5);

type Http = HttpClient<Road, Body>;
type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The HTTP stack of one spoke. Clones share it.
#[derive(Clone)]
pub struct Stack {
    access: Arc<Access>,
    keeper: Arc<Keeper>,
    lanes: Arc<ArcSwap<Lanes>>,
}

/// The connections of one spoke: a burst of writes on the one delays no event on the other.
struct Lanes {
    requests: Http,
    watches: Http,
    http2: bool,
    /// The client certificate that they were made with, in PEM.
    certificate: Option<String>,
}

/// Why a request got no answer.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// The credential is stale and the plugin gives no other, or one that no connection can be made with.
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

impl Stack {
    /// The stack for the spoke that `access` describes, with the credential of `keeper`. Nothing is connected yet.
    pub async fn new(access: Arc<Access>, keeper: Arc<Keeper>) -> Result<Self, Unresolved> {
        let held = keeper.current().await?;
        let lanes = Arc::new(ArcSwap::from_pointee(lanes(&access, &held, true)?));
        Ok(Self { access, keeper, lanes })
    }

    /// A client that uses it.
    pub fn client(&self) -> Client {
        Client::new(self.clone(), "default")
    }

    /// Drops its connections: the next request makes new ones, by HTTP/2 or by HTTP/1.1.
    pub async fn renew(&self, http2: bool) -> Result<(), Unresolved> {
        let held = self.keeper.current().await?;
        self.lanes.store(Arc::new(lanes(&self.access, &held, http2)?));
        Ok(())
    }

    /// Whether `error` says that the server doesn't speak the protocol that is tried.
    pub fn is_other_protocol(&self, error: &kube::Error) -> bool {
        self.lanes.load().http2 && is_no_http2(error)
    }

    /// The lanes for `held`: other ones if its client certificate is another.
    fn lanes(&self, held: &Held) -> Result<Arc<Lanes>, Unresolved> {
        let current = self.lanes.load_full();
        let certificate = held.credential.identity.as_ref().map(|(certificate, _)| certificate);
        if current.certificate.as_ref() == certificate {
            return Ok(current);
        }
        let fresh = Arc::new(lanes(&self.access, held, current.http2)?);
        self.lanes.store(Arc::clone(&fresh));
        Ok(fresh)
    }

    async fn send(&self, request: Request<Body>) -> Result<Response<Bounded>, TransportError> {
        let (mut parts, body) = request.into_parts();
        parts.uri = join(&self.access.server, &parts.uri)?;
        let watch = parts.uri.query().is_some_and(|q| q.split('&').any(|p| p == "watch=true" || p == "watch=1"));
        let again = body.try_clone();
        let held = self.keeper.current().await?;
        let answer = once(&*self.lanes(&held)?, watch, &parts, body, &held).await?;
        let (answer, held) = match again {
            Some(body) if answer.status() == StatusCode::UNAUTHORIZED => {
                let fresh = self.keeper.newer_than(&held).await?;
                if Arc::ptr_eq(&fresh, &held) {
                    (answer, held)
                } else {
                    (once(&*self.lanes(&fresh)?, watch, &parts, body, &fresh).await?, fresh)
                }
            }
            _ => (answer, held),
        };
        let (parts, body) = answer.into_parts();
        let body = if parts.status.is_success() {
            Bounded::new(body, watch)
        } else {
            Bounded::refusal(body, held.credential.token.as_ref().map(ExposeSecret::expose_secret)).await
        };
        Ok(Response::from_parts(parts, body))
    }
}

impl tower::Service<Request<Body>> for Stack {
    type Response = Response<Bounded>;
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

fn lanes(access: &Access, held: &Held, http2: bool) -> Result<Lanes, Unresolved> {
    let (config, name) = tls::config(access, held.credential.identity.as_ref())?;
    let http = |idle: Option<Duration>| {
        HttpClient::builder(TokioExecutor::new())
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(idle)
            .pool_max_idle_per_host(2)
            .http2_only(http2)
            .http2_keep_alive_interval(PING)
            .http2_keep_alive_timeout(PONG)
            .http2_keep_alive_while_idle(true)
            .build(Road::new(&config, name.clone(), access.proxy.as_ref(), http2))
    };
    let certificate = held.credential.identity.as_ref().map(|(certificate, _)| certificate.clone());
    Ok(Lanes { requests: http(Some(IDLE)), watches: http(None), http2, certificate })
}

async fn once(
    lanes: &Lanes,
    watch: bool,
    parts: &http::request::Parts,
    body: Body,
    held: &Held,
) -> Result<Response<Incoming>, TransportError> {
    let mut request = Request::from_parts(parts.clone(), body);
    // A program's name and version are plain ASCII.
    request
        .headers_mut()
        .extend(HeaderValue::from_str(&user_agent(FIELD_MANAGER)).ok().map(|agent| (USER_AGENT, agent)));
    if let Some(header) = held.authorization() {
        request.headers_mut().insert(AUTHORIZATION, header);
    }
    let http = if watch { &lanes.watches } else { &lanes.requests };
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
        let join = |server: &str, path: &str| {
            super::join(&server.parse().unwrap(), &path.parse().unwrap()).unwrap().to_string()
        };
        assert_eq!(join("https://h:6443", "/api/v1/pods?watch=true"), "https://h:6443/api/v1/pods?watch=true");
        assert_eq!(join("https://h/k8s/c-1/", "/version"), "https://h/k8s/c-1/version");
    }
}
