//! Accepts TLS connections, within limits, and drains them at the end.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use rustls::server::ResolvesServerCert;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

use crate::error_text;

/// Maximum number of connections.
const MAX_CONNECTIONS: usize = 1024;
/// Time limit of a handshake, and of the wait for the first request after it.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// Time limit of idle connections and request headers. An API server (Go) closes idle connections
/// after 90 s, and must always do so first: a review that is sent at the moment in which the
/// webhook closes its connection fails.
const IDLE_TIMEOUT: Duration = Duration::from_secs(120);
/// At the end, time in which idle connections may be used once more, when each response closes its
/// connection. Connections that no review used in this time are closed.
const DRAIN_IDLE_TIMEOUT: Duration = Duration::from_secs(15);
/// Time limit of reviews in progress after that: longer than an API server waits.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(12);

/// Serves `router` on `listener` until `stop`, with the certificate that `resolver` has at each
/// handshake. Then finishes requests in progress.
pub async fn serve(
    listener: TcpListener,
    resolver: Arc<dyn ResolvesServerCert>,
    router: Router,
    stop: CancellationToken,
) {
    // TLS 1.3 and 1.2 with the cipher suites of rustls, which are all ephemeral and authenticated.
    let mut config = ServerConfig::builder().with_no_client_auth().with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE_TIMEOUT);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(Duration::from_secs(30)));
    let builder = Arc::new(builder);
    let graceful = Arc::new(GracefulShutdown::new());
    let permits = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let Ok((stream, _)) = accepted else {
            // Probably out of file descriptors: let connections end first.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&permits).try_acquire_owned() else { continue };
        let (acceptor, builder, watcher, router) =
            (acceptor.clone(), Arc::clone(&builder), graceful.watcher(), router.clone());
        tokio::spawn(async move {
            let _permit = permit;
            if let Some(stream) = accept(&acceptor, stream).await {
                let connection =
                    builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).into_owned();
                if let Err(error) = watcher.watch(connection).await {
                    tracing::debug!(error = error_text(&*error), "connection failed");
                }
            }
        });
    }
    drop(listener);
    let everything = u32::try_from(MAX_CONNECTIONS).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(DRAIN_IDLE_TIMEOUT, permits.acquire_many(everything)).await;
    if let Some(graceful) = Arc::into_inner(graceful) {
        let _ = tokio::time::timeout(DRAIN_TIMEOUT, graceful.shutdown()).await;
    }
}

/// The connection, once the handshake is done and a request starts.
async fn accept(acceptor: &TlsAcceptor, stream: TcpStream) -> Option<BufReader<TlsStream<TcpStream>>> {
    let _ = stream.set_nodelay(true);
    let mut first = [0];
    let peeked = tokio::time::timeout(HANDSHAKE_TIMEOUT, stream.peek(&mut first)).await.ok()?.ok()?;
    if peeked == 1 && first[0].is_ascii_uppercase() {
        let _ = tokio::time::timeout(HANDSHAKE_TIMEOUT, refuse_plain(stream)).await;
        return None;
    }
    let stream = tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await.ok()?;
    let stream = stream.inspect_err(|error| tracing::debug!(error = error_text(error), "handshake failed")).ok()?;
    let mut stream = BufReader::with_capacity(512, stream);
    let began =
        tokio::time::timeout(HANDSHAKE_TIMEOUT, stream.fill_buf()).await.ok()?.is_ok_and(|bytes| !bytes.is_empty());
    began.then_some(stream)
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
