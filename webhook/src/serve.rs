//! Accepts connections over TLS, within limits, and drains them at the end.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use knative_operator_certs::Served;
use knative_operator_runtime::words;
use rustls::ServerConfig;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;

/// Connections at once, at most.
const CONNECTIONS: usize = 1024;
/// How long a handshake may take, and after it the first byte of a request.
const PATIENCE: Duration = Duration::from_secs(5);
/// How long a connection may be idle, or the head of a request may take. An API server (Go) lets go of idle connections after 90 s: it must
/// always be the first to do so, or a review that is sent at that very moment is lost, and refused.
const IDLE: Duration = Duration::from_secs(120);
/// How long, at the end, connections that are idle wait to be used once more: each answer is then the last on its connection, and a review
/// that is sent at the very moment its connection is closed is lost. What nobody has used for so long is closed.
const LINGER: Duration = Duration::from_secs(15);
/// How long reviews under way get after that: longer than an API server waits for one.
const DRAIN: Duration = Duration::from_secs(12);
/// Serves `router` on `listener` until `stop`, with the certificate that `served` has at each handshake. What is under way then is answered.
pub async fn serve(listener: TcpListener, served: Served, router: Router, stop: CancellationToken) {
    // TLS 1.3 and 1.2, with the suites that rustls has: all of them ephemeral and authenticated.
    let mut config = ServerConfig::builder().with_no_client_auth().with_cert_resolver(Arc::new(served));
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(Duration::from_secs(30)));
    let builder = Arc::new(builder);
    let graceful = Arc::new(GracefulShutdown::new());
    let room = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let Ok((stream, _)) = accepted else {
            // Out of file descriptors, most likely: let some connections end first.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(permit) = Arc::clone(&room).try_acquire_owned() else { continue };
        let (acceptor, builder, watcher, router) =
            (acceptor.clone(), Arc::clone(&builder), graceful.watcher(), router.clone());
        tokio::spawn(async move {
            let _permit = permit;
            if let Some(stream) = open(&acceptor, stream).await {
                let connection =
                    builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).into_owned();
                if let Err(error) = watcher.watch(connection).await {
                    tracing::debug!(error = words(&*error), "connection ended");
                }
            }
        });
    }
    drop(listener);
    let everything = u32::try_from(CONNECTIONS).unwrap_or(u32::MAX);
    let _ = tokio::time::timeout(LINGER, room.acquire_many(everything)).await;
    if let Some(graceful) = Arc::into_inner(graceful) {
        let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
    }
}

/// The connection, once the handshake is done and a request begins to come.
async fn open(acceptor: &TlsAcceptor, stream: TcpStream) -> Option<BufReader<TlsStream<TcpStream>>> {
    let _ = stream.set_nodelay(true);
    let mut first = [0];
    let peeked = tokio::time::timeout(PATIENCE, stream.peek(&mut first)).await.ok()?.ok()?;
    if peeked == 1 && first[0].is_ascii_uppercase() {
        let _ = tokio::time::timeout(PATIENCE, refuse_plain(stream)).await;
        return None;
    }
    let stream = tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await.ok()?;
    let stream = stream.inspect_err(|error| tracing::debug!(error = words(error), "handshake failed")).ok()?;
    let mut stream = BufReader::with_capacity(512, stream);
    let began = tokio::time::timeout(PATIENCE, stream.fill_buf()).await.ok()?.is_ok_and(|bytes| !bytes.is_empty());
    began.then_some(stream)
}

/// Tells whoever speaks HTTP without TLS that this is no port for it, and lets them read it.
async fn refuse_plain(mut stream: TcpStream) -> std::io::Result<()> {
    const SAYS: &str = "this port speaks HTTPS: use https:// instead\n";
    let answer = format!(
        "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{SAYS}",
        SAYS.len()
    );
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    // Closed with something unread, the answer would be lost.
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await? > 0 {}
    Ok(())
}
