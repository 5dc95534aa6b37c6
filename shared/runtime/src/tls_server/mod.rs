//! Accepts TLS or plain connections, within limits, and drains them at the end: [`connections`] has
//! the limits, [`fairness`] decides who gives way, [`activity`] when a connection is slow or idle
//! ([`observed`] reports when bytes arrive), [`client_ca`] verifies clients, and [`caller`] is what
//! handlers know.

mod activity;
mod caller;
mod client_ca;
mod connections;
mod fairness;
mod observed;
#[cfg(test)]
mod tests;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::http::Request;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tower::Service;

use crate::error_text;

pub use self::caller::{Caller, Memory};
pub use self::client_ca::{ClientCa, ClientCaError};
use self::connections::{Connection, Connections, Limits, Slot};
use self::observed::Observed;

/// Maximum of the memory of all requests in progress (see [`Memory`]), in bytes.
pub const MAX_MEMORY: usize = 128 << 20;

const LIMITS: Limits = Limits { connections: 1024, memory: MAX_MEMORY };
/// Limits of the servers that a kubelet and a few Prometheus servers use.
const PLAIN_LIMITS: Limits = Limits { connections: 128, memory: MAX_MEMORY };
/// Maximum length of the headers of a request in HTTP/1.1, and of the bytes that are read at a
/// time.
const HTTP1_BUFFER: usize = 64 << 10;
/// The same for those servers.
const PLAIN_BUFFER: usize = 16 << 10;
/// Maximum number of requests in progress on a connection in HTTP/2.
const HTTP2_STREAMS: u32 = 128;
/// Maximum number of bytes that a peer may send in HTTP/2 before a handler reads them: of a
/// request, and of a connection.
const HTTP2_WINDOWS: (u32, u32) = (64 << 10, 128 << 10);
/// Interval and time limit of pings in HTTP/2.
const PINGS: (Duration, Duration) = (Duration::from_secs(30), Duration::from_secs(10));
/// At the end, time in which idle connections may be used once more, when each response closes its
/// connection. Connections that no review used in this time are closed.
const DRAIN_IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Time limit of reviews in progress after that, or of those on an idle connection that is closed:
/// longer than an API server waits.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(12);
/// Time to wait if no connection can be accepted.
const ACCEPT_DELAY: Duration = Duration::from_millis(50);
/// Time to wait for the file descriptor of a connection that gave way.
const SHED_DELAY: Duration = Duration::from_millis(1);

/// Serves `router` on `listener` until `stop`, with the certificate that `resolver` has at each
/// handshake. Then finishes requests in progress. With `clients`, only clients with a certificate
/// that it accepts can connect.
pub async fn serve(
    listener: TcpListener,
    resolver: Arc<dyn ResolvesServerCert>,
    clients: Option<Arc<dyn ClientCertVerifier>>,
    router: Router,
    stop: CancellationToken,
) {
    Arc::new(Server::new(resolver, clients, router, LIMITS)).run_within_limits(listener, stop).await;
}

/// The same as [`serve`], for all clients, within the limits of a plain server.
pub async fn serve_few(
    listener: TcpListener,
    resolver: Arc<dyn ResolvesServerCert>,
    router: Router,
    stop: CancellationToken,
) {
    let server = Server { http1: http1(PLAIN_BUFFER), ..Server::new(resolver, None, router, PLAIN_LIMITS) };
    Arc::new(server).run_within_limits(listener, stop).await;
}

/// Serves `router` on `listener` until `stop`, in HTTP/1.1 without TLS. Then finishes requests in
/// progress, and closes idle connections.
pub async fn serve_plain(listener: TcpListener, router: Router, stop: CancellationToken) {
    Arc::new(Server::plain(router, PLAIN_LIMITS)).run_within_limits(listener, stop).await;
}

/// What all connections share.
struct Server {
    /// `None` without TLS.
    acceptor: Option<TlsAcceptor>,
    http1: Builder<TokioExecutor>,
    http2: Builder<TokioExecutor>,
    router: Router,
    connections: Arc<Connections>,
    /// See [`DRAIN_IDLE_TIMEOUT`].
    drain: Duration,
}

impl Server {
    fn plain(router: Router, limits: Limits) -> Self {
        let (acceptor, connections) = (None, Connections::new(limits));
        let (http1, http2) = (http1(PLAIN_BUFFER), http2());
        Self { acceptor, http1, http2, router, connections, drain: Duration::ZERO }
    }

    fn new(
        resolver: Arc<dyn ResolvesServerCert>,
        clients: Option<Arc<dyn ClientCertVerifier>>,
        router: Router,
        limits: Limits,
    ) -> Self {
        // TLS 1.3 and 1.2 with the cipher suites of rustls, which are all ephemeral and
        // authenticated.
        let (config, is_restricted) = (ServerConfig::builder(), clients.is_some());
        let clients = clients.unwrap_or_else(WebPkiClientVerifier::no_client_auth);
        let mut config = config.with_client_cert_verifier(clients).with_cert_resolver(resolver);
        if is_restricted {
            // A resumed session would outlast a change of the authorities.
            config.session_storage = Arc::new(NoServerSessionStorage {});
        }
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = Some(TlsAcceptor::from(Arc::new(config)));
        let connections = Connections::new(limits);
        Self { acceptor, http1: http1(HTTP1_BUFFER), http2: http2(), router, connections, drain: DRAIN_IDLE_TIMEOUT }
    }

    async fn run_within_limits(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        tokio::select! {
            () = Arc::clone(&self).run(listener, stop) => {}
            () = self.connections.enforce_time_limits() => {}
        }
    }

    /// Accepts connections until `stop`, then drains them.
    async fn run(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        let tasks = TaskTracker::new();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = stop.cancelled() => break,
            };
            match accepted {
                Ok((stream, peer)) => {
                    let slot = self.connections.admit(peer.ip());
                    tasks.spawn(Arc::clone(&self).attend(stream, slot));
                }
                // Newcomers are admitted here, too.
                Err(error) if is_out_of_files(&error) => {
                    self.connections.shed();
                    tokio::time::sleep(SHED_DELAY).await;
                }
                Err(_) => tokio::time::sleep(ACCEPT_DELAY).await,
            }
        }
        drop(listener);
        tasks.close();
        let _ = timeout(self.drain, tasks.wait()).await;
        self.connections.finish();
        let _ = timeout(DRAIN_TIMEOUT, tasks.wait()).await;
    }

    /// Serves a connection until it ends, or has to give way.
    async fn attend(self: Arc<Self>, stream: TcpStream, slot: Slot) {
        let connection = slot.connection();
        tokio::select! {
            () = self.serve(stream, connection) => {}
            () = connection.until_cut() => {}
        }
    }

    async fn serve(&self, stream: TcpStream, connection: &Arc<Connection>) {
        let Some(acceptor) = &self.acceptor else { return self.converse(stream, false, connection).await };
        let stream = tokio::select! {
            stream = accept(acceptor, stream) => stream,
            () = connection.until_finish() => return,
        };
        let Some(stream) = stream else { return };
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2".as_slice());
        self.converse(stream, is_http2, connection).await;
    }

    /// Answers the requests on `stream`.
    async fn converse<S>(&self, stream: S, is_http2: bool, connection: &Arc<Connection>)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        // API servers call webhooks in HTTP/1.1. In HTTP/2, pings begin with what the peer sends
        // first.
        if !is_http2 {
            connection.establish();
        }
        let (mut router, caller) = (self.router.clone(), Arc::clone(connection));
        let service = tower::service_fn(move |mut request: Request<Incoming>| {
            let busy = caller.begin();
            request.extensions_mut().insert(Caller::new(&caller));
            let response = router.call(request);
            async move {
                let _busy = busy;
                response.await
            }
        });
        // In HTTP/2, bytes may belong to no request: pings limit the time in which they arrive.
        let observer = (!is_http2).then(|| Arc::clone(connection));
        let io = TokioIo::new(Observed { stream, connection: observer });
        let builder = if is_http2 { &self.http2 } else { &self.http1 };
        let mut served = pin!(builder.serve_connection(io, TowerToHyperService::new(service)));
        let outcome = tokio::select! {
            outcome = served.as_mut() => outcome,
            () = connection.until_finish() => {
                served.as_mut().graceful_shutdown();
                timeout(DRAIN_TIMEOUT, served).await.unwrap_or(Ok(()))
            }
        };
        if let Err(error) = outcome {
            tracing::debug!(error = error_text(&*error), "connection failed");
        }
    }
}

/// HTTP/1.1 with buffers of at most `buffer` bytes.
fn http1(buffer: usize) -> Builder<TokioExecutor> {
    let mut http1 = Builder::new(TokioExecutor::new()).http1_only();
    // `activity` has the time limit: this one would include the time before the first byte.
    http1.http1().header_read_timeout(None::<Duration>).max_buf_size(buffer);
    http1
}

fn http2() -> Builder<TokioExecutor> {
    let mut http2 = Builder::new(TokioExecutor::new()).http2_only();
    http2
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(PINGS.0)
        .keep_alive_timeout(PINGS.1)
        .max_concurrent_streams(HTTP2_STREAMS)
        .initial_stream_window_size(HTTP2_WINDOWS.0)
        .initial_connection_window_size(HTTP2_WINDOWS.1);
    http2
}

/// Whether the process or the machine has no file descriptor left: `ENFILE`, `EMFILE`.
fn is_out_of_files(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(23 | 24))
}

/// The connection, once the handshake is done.
async fn accept(acceptor: &TlsAcceptor, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
    let _ = stream.set_nodelay(true);
    let mut first = [0];
    if stream.peek(&mut first).await.ok()? == 1 && first[0].is_ascii_uppercase() {
        let _ = refuse_plain(stream).await;
        return None;
    }
    let stream = acceptor.accept(stream).await;
    stream.inspect_err(|error| tracing::debug!(error = error_text(error), "handshake failed")).ok()
}

/// Answers HTTP without TLS with an error.
async fn refuse_plain(mut stream: TcpStream) -> std::io::Result<()> {
    const MESSAGE: &str = "this port requires HTTPS; use https://\n";
    let response = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{MESSAGE}",
        MESSAGE.len()
    );
    stream.write_all(response.as_bytes()).await?;
    stream.shutdown().await?;
    // Read the rest: closing a socket with unread data would discard the response.
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}
