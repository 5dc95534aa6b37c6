//! A proxy for an API server, or another server, with an interceptor for its requests. [`Trap`]
//! counts the writes, and kills the process that made a given write: before the API server receives
//! it, or after it has handled it and before the response. [`crate::chaos`] injects faults.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::BoxFuture;
use http::{Method, Request, Response, Version};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as HttpClient;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use rustix::process::{Pid, Signal, kill_process};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};
use tokio::net::TcpListener;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::Result;
use crate::cluster::Cluster;
use crate::pki::Authority;

/// When the process is killed.
#[derive(Clone, Copy, Debug)]
pub enum When {
    /// Before the write reaches the API server.
    Before,
    /// After the API server has handled the write, before the response.
    After,
}

/// A trap for one process, behind one or more gates.
#[derive(Default)]
pub struct Trap {
    set: Mutex<Option<(usize, When)>>,
    /// The process to kill.
    pid: watch::Sender<Option<i32>>,
    triggered: Notify,
    /// The write that triggered it.
    at: Mutex<String>,
}

impl Trap {
    /// Kills a process at its write number `nth` (at least 1) from now on. The write waits until
    /// the process is known.
    pub fn set(&self, nth: usize, when: When) {
        self.pid.send_replace(None);
        *self.set.lock().unwrap_or_else(PoisonError::into_inner) = Some((nth, when));
    }

    /// Sets the process.
    pub fn set_process(&self, pid: i32) {
        self.pid.send_replace(Some(pid));
    }

    /// Disarms the trap; returns whether it was still set.
    pub fn unset(&self) -> bool {
        self.set.lock().unwrap_or_else(PoisonError::into_inner).take().is_some()
    }

    /// Waits until the trap is triggered; returns the write.
    pub async fn triggered(&self) -> String {
        self.triggered.notified().await;
        self.at.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts a write; whether and when the process is killed at it.
    fn step(&self, write: &str) -> Option<When> {
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        let (left, when) = set.as_mut()?;
        *left -= 1;
        let due = (*left == 0).then_some(*when);
        if due.is_some() {
            *set = None;
            write.clone_into(&mut self.at.lock().unwrap_or_else(PoisonError::into_inner));
        }
        due
    }

    async fn kill(&self) {
        let mut aimed = self.pid.subscribe();
        let pid = aimed.wait_for(Option::is_some).await.ok().and_then(|pid| Pid::from_raw((*pid)?));
        if let Some(pid) = pid {
            let _ = kill_process(pid, Signal::KILL);
        }
        self.triggered.notify_one();
    }
}

/// Body of a response.
pub type Body = UnsyncBoxBody<Bytes, io::Error>;
/// Response of a proxy; an error closes the connection, or the stream of HTTP/2.
pub type Answer = io::Result<Response<Body>>;

/// Handles the requests of a proxy.
pub trait Interceptor: Send + Sync + 'static {
    /// Answers `request`, usually by sending it to `server`.
    fn answer(self: Arc<Self>, server: Upstream, request: Request<Incoming>) -> BoxFuture<'static, Answer>;
}

/// The server behind a proxy.
#[derive(Clone)]
pub struct Upstream {
    url: String,
    http: Http,
}

impl Upstream {
    /// The server at `url` with a certificate of `authority` (PEM).
    pub fn new(url: String, authority: &str) -> Result<Self> {
        Ok(Self { url, http: client(authority)? })
    }

    /// Sends `request`; returns the response.
    pub async fn send<B>(&self, request: Request<B>) -> Answer
    where
        B: hyper::body::Body<Data = Bytes> + Send + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (mut parts, body) = request.into_parts();
        let path = parts.uri.path_and_query().map_or("/", |path| path.as_str());
        parts.uri = format!("{}{path}", self.url).parse().map_err(io::Error::other)?;
        parts.version = Version::HTTP_11;
        // Of the proxy: over HTTP/2, servers refuse a request with two different hosts.
        parts.headers.remove(http::header::HOST);
        let body = body.map_err(io::Error::other).boxed_unsync();
        let answer = self.http.request(Request::from_parts(parts, body)).await.map_err(io::Error::other)?;
        Ok(answer.map(|body| body.map_err(io::Error::other).boxed_unsync()))
    }
}

/// A proxy for one server. Dropping it closes it.
pub struct Gate {
    /// Its address.
    pub address: SocketAddr,
    /// Its URL.
    pub url: String,
    /// The authority of its certificate, in PEM.
    pub authority: String,
    accept: JoinHandle<()>,
}

type Http = HttpClient<HttpsConnector<HttpConnector>, Body>;

impl Gate {
    /// Starts a proxy for `cluster` with `interceptor`.
    pub async fn open<I: Interceptor>(cluster: &Cluster, interceptor: &Arc<I>) -> Result<Self> {
        let authority = Authority::new("gate")?;
        let server = Upstream::new(cluster.url(), cluster.authority())?;
        Self::before(server, (authority.acceptor()?, authority.pem()), interceptor).await
    }

    /// Starts a proxy for `server` with `interceptor`. It has a certificate of `authority` (PEM).
    pub async fn before<I: Interceptor>(
        server: Upstream,
        (acceptor, authority): (TlsAcceptor, String),
        interceptor: &Arc<I>,
    ) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, interceptor) = (listener.local_addr()?, Arc::clone(interceptor));
        let accept = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, server, interceptor) = (acceptor.clone(), server.clone(), Arc::clone(&interceptor));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let service = service_fn(move |request| Arc::clone(&interceptor).answer(server.clone(), request));
                    // A connection that ends early ended with its process.
                    let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Ok(Self { address, url: format!("https://{address}"), authority, accept })
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

fn client(authority: &str) -> Result<Http> {
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(authority.as_bytes()) {
        roots.add(certificate?)?;
    }
    let config = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(config).https_only().enable_http1().enable_http2().build();
    Ok(HttpClient::builder(TokioExecutor::new()).build(connector))
}

/// Whether `request` counts as a write: not for Leases, status and events.
fn writes(request: &Request<Incoming>) -> bool {
    let path = request.uri().path();
    *request.method() != Method::GET
        && !["/leases", "/events", "selfsubjectaccessreviews"].iter().any(|part| path.contains(part))
}

impl Interceptor for Trap {
    fn answer(self: Arc<Self>, server: Upstream, request: Request<Incoming>) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            let write = format!("{} {}", request.method(), request.uri().path());
            let due = if writes(&request) { self.step(&write) } else { None };
            if let Some(When::Before) = due {
                self.kill().await;
                return Err(io::Error::other("killed"));
            }
            let answer = server.send(request).await?;
            if let Some(When::After) = due {
                self.kill().await;
                return Err(io::Error::other("killed"));
            }
            Ok(answer)
        })
    }
}
