//! Accepts connections over TLS, within limits, and drains them at the end.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use knative_operator_certs::Served;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;

/// Connections at once, at most.
const CONNECTIONS: usize = 1024;
/// How long a handshake may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long a connection may be idle, or the head of a request may take. An API server (Go) lets go of idle connections after 90 s: it must
/// always be the first to do so, or a review that is sent at that very moment is lost, and refused.
const IDLE: Duration = Duration::from_secs(120);
/// How long reviews under way get at the end.
const DRAIN: Duration = Duration::from_secs(20);

/// Serves `router` on `listener` until `stop`, with the certificate that `served` has at each handshake.
pub async fn serve(listener: TcpListener, served: Served, router: Router, stop: CancellationToken) {
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
        let (acceptor, builder, watcher, router) = (acceptor.clone(), Arc::clone(&builder), graceful.watcher(), router.clone());
        tokio::spawn(async move {
            let _permit = permit;
            if let Some(stream) = handshake(&acceptor, stream).await {
                let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).into_owned();
                if let Err(error) = watcher.watch(connection).await {
                    tracing::debug!(%error, "connection ended");
                }
            }
        });
    }
    drop(listener);
    if let Some(graceful) = Arc::into_inner(graceful) {
        let _ = tokio::time::timeout(DRAIN, graceful.shutdown()).await;
    }
}

async fn handshake(acceptor: &TlsAcceptor, stream: TcpStream) -> Option<tokio_rustls::server::TlsStream<TcpStream>> {
    let _ = stream.set_nodelay(true);
    match tokio::time::timeout(PATIENCE, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(%error, "handshake failed");
            None
        }
        Err(_) => None,
    }
}
