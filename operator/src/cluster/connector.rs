//! Connects to a spoke: TCP, an optional proxy, TLS, and protocol negotiation.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use http::{HeaderValue, Uri};
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connection, HttpConnector};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use secrecy::ExposeSecret;
use tokio::net::TcpStream;
use tower::Service;

use super::address::{Proxy, Scheme};

/// Time limit of a connection attempt, TLS and proxy included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle time before the kernel sends keep-alive probes.
const KEEPALIVE: Duration = Duration::from_secs(30);

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;
type ConnectFuture<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// Why a connection failed, apart from errors of the network and TLS.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The server doesn't speak HTTP/2.
    #[error("the server does not speak HTTP/2")]
    NoHttp2,
    /// The attempt took too long.
    #[error("no connection within {CONNECT_TIMEOUT:?}")]
    TimedOut,
}

/// Connects below TLS: directly, or through a proxy.
#[derive(Clone)]
enum ProxyConnector {
    Direct(HttpConnector),
    Http(Tunnel<HttpConnector>),
    Https(Tunnel<HttpsConnector<HttpConnector>>),
    Socks(SocksV5<HttpConnector>),
}

impl Service<Uri> for ProxyConnector {
    type Response = Stream;
    type Error = BoxError;
    type Future = ConnectFuture<Stream>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        match self.clone() {
            Self::Direct(mut tcp) => Box::pin(async move { Ok(MaybeHttpsStream::Http(tcp.call(to).await?)) }),
            Self::Http(mut proxy) => Box::pin(async move { Ok(MaybeHttpsStream::Http(proxy.call(to).await?)) }),
            Self::Https(mut proxy) => Box::pin(async move { Ok(proxy.call(to).await?) }),
            Self::Socks(mut proxy) => Box::pin(async move { Ok(MaybeHttpsStream::Http(proxy.call(to).await?)) }),
        }
    }
}

/// Connects to one API server with one protocol.
#[derive(Clone)]
pub struct SpokeConnector {
    tls: HttpsConnector<ProxyConnector>,
    http2: bool,
}

impl SpokeConnector {
    /// A connector with the settings `tls`; verifies the certificate for `name` instead of the
    /// host, if given; HTTP/2 or HTTP/1.1.
    pub fn new(tls: &ClientConfig, name: Option<ServerName<'static>>, proxy: Option<&Proxy>, http2: bool) -> Self {
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_only();
        let builder = match name {
            Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(name)),
            None => builder,
        };
        let proxy_connector = proxy_connector(tls, proxy);
        let tls = if http2 {
            builder.enable_http2().wrap_connector(proxy_connector)
        } else {
            builder.enable_http1().wrap_connector(proxy_connector)
        };
        Self { tls, http2 }
    }
}

fn proxy_connector(tls: &ClientConfig, proxy: Option<&Proxy>) -> ProxyConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_keepalive(Some(KEEPALIVE));
    let Some(Proxy { scheme, url, login }) = proxy else { return ProxyConnector::Direct(tcp) };
    let basic = login.as_ref().and_then(|login| {
        let pair = format!("{}:{}", login.user, login.password.expose_secret());
        let mut header = HeaderValue::try_from(format!("Basic {}", super::exec::base64(&pair))).ok()?;
        header.set_sensitive(true);
        Some(header)
    });
    match (scheme, basic) {
        (Scheme::Socks5, _) => {
            let socks = SocksV5::new(url.clone(), tcp);
            ProxyConnector::Socks(match login {
                Some(login) => socks.with_auth(login.user.clone(), login.password.expose_secret().to_owned()),
                None => socks,
            })
        }
        (Scheme::Http, None) => ProxyConnector::Http(Tunnel::new(url.clone(), tcp)),
        (Scheme::Http, Some(basic)) => ProxyConnector::Http(Tunnel::new(url.clone(), tcp).with_auth(basic)),
        (Scheme::Https, basic) => {
            let tls = HttpsConnectorBuilder::new()
                .with_tls_config(tls.clone())
                .https_only()
                .enable_http1()
                .wrap_connector(tcp);
            let tunnel = Tunnel::new(url.clone(), tls);
            ProxyConnector::Https(match basic {
                Some(basic) => tunnel.with_auth(basic),
                None => tunnel,
            })
        }
    }
}

impl Service<Uri> for SpokeConnector {
    type Response = MaybeHttpsStream<Stream>;
    type Error = BoxError;
    type Future = ConnectFuture<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let (connecting, http2) = (self.tls.call(to), self.http2);
        Box::pin(async move {
            let stream =
                tokio::time::timeout(CONNECT_TIMEOUT, connecting).await.map_err(|_| ConnectError::TimedOut)??;
            if http2 && !stream.connected().is_negotiated_h2() {
                return Err(ConnectError::NoHttp2.into());
            }
            Ok(stream)
        })
    }
}

/// Whether `error` means that the server doesn't speak HTTP/2.
pub fn is_http2_unsupported(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if matches!(error.downcast_ref(), Some(ConnectError::NoHttp2)) {
            return true;
        }
        let refused = |e: &rustls::Error| {
            matches!(e, rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol))
        };
        // A TLS error is the inner error of an I/O error.
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if error.downcast_ref().is_some_and(refused) || inner.and_then(|e| e.downcast_ref()).is_some_and(refused) {
            return true;
        }
        next = error.source();
    }
    false
}
