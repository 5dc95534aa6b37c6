//! How a connection to a spoke comes about: TCP, perhaps through a proxy, TLS, and the protocol that both agree on.

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

/// How long a connection may take to come about, TLS and proxy included.
const CONNECT: Duration = Duration::from_secs(5);
/// How long a connection may be silent before the kernel asks whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(30);

type BoxError = Box<dyn std::error::Error + Send + Sync>;
type Stream = MaybeHttpsStream<TokioIo<TcpStream>>;
type Coming<T> = Pin<Box<dyn Future<Output = Result<T, BoxError>> + Send>>;

/// Why a connection did not come about, where it is not the network's or TLS's own reason.
#[derive(Debug, thiserror::Error)]
pub enum RoadError {
    /// The server doesn't speak HTTP/2.
    #[error("the server does not speak HTTP/2")]
    NoHttp2,
    /// It took too long.
    #[error("no connection came about within {CONNECT:?}")]
    Slow,
}

/// The part below TLS.
#[derive(Clone)]
enum Ground {
    Direct(HttpConnector),
    Http(Tunnel<HttpConnector>),
    Https(Tunnel<HttpsConnector<HttpConnector>>),
    Socks(SocksV5<HttpConnector>),
}

impl Service<Uri> for Ground {
    type Response = Stream;
    type Error = BoxError;
    type Future = Coming<Stream>;

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

/// The way to one server, by one protocol.
#[derive(Clone)]
pub struct Road {
    tls: HttpsConnector<Ground>,
    http2: bool,
}

impl Road {
    /// The way to a server with `tls`, whose certificate is for `name` if not for its host; by HTTP/2, or by HTTP/1.1.
    pub fn new(tls: &ClientConfig, name: Option<ServerName<'static>>, proxy: Option<&Proxy>, http2: bool) -> Self {
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_only();
        let builder = match name {
            Some(name) => builder.with_server_name_resolver(FixedServerNameResolver::new(name)),
            None => builder,
        };
        let ground = ground(tls, proxy);
        let tls = if http2 {
            builder.enable_http2().wrap_connector(ground)
        } else {
            builder.enable_http1().wrap_connector(ground)
        };
        Self { tls, http2 }
    }
}

fn ground(tls: &ClientConfig, proxy: Option<&Proxy>) -> Ground {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_keepalive(Some(KEEPALIVE));
    let Some(Proxy { scheme, url, login }) = proxy else { return Ground::Direct(tcp) };
    let basic = login.as_ref().and_then(|login| {
        let pair = format!("{}:{}", login.user, login.password.expose_secret());
        let mut header = HeaderValue::try_from(format!("Basic {}", super::exec::base64(&pair))).ok()?;
        header.set_sensitive(true);
        Some(header)
    });
    match (scheme, basic) {
        (Scheme::Socks5, _) => {
            let socks = SocksV5::new(url.clone(), tcp);
            Ground::Socks(match login {
                Some(login) => socks.with_auth(login.user.clone(), login.password.expose_secret().to_owned()),
                None => socks,
            })
        }
        (Scheme::Http, None) => Ground::Http(Tunnel::new(url.clone(), tcp)),
        (Scheme::Http, Some(basic)) => Ground::Http(Tunnel::new(url.clone(), tcp).with_auth(basic)),
        (Scheme::Https, basic) => {
            let tls = HttpsConnectorBuilder::new()
                .with_tls_config(tls.clone())
                .https_only()
                .enable_http1()
                .wrap_connector(tcp);
            let tunnel = Tunnel::new(url.clone(), tls);
            Ground::Https(match basic {
                Some(basic) => tunnel.with_auth(basic),
                None => tunnel,
            })
        }
    }
}

impl Service<Uri> for Road {
    type Response = MaybeHttpsStream<Stream>;
    type Error = BoxError;
    type Future = Coming<Self::Response>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let (connecting, http2) = (self.tls.call(to), self.http2);
        Box::pin(async move {
            let stream = tokio::time::timeout(CONNECT, connecting).await.map_err(|_| RoadError::Slow)??;
            if http2 && !stream.connected().is_negotiated_h2() {
                return Err(RoadError::NoHttp2.into());
            }
            Ok(stream)
        })
    }
}

/// Whether `error` says that the server doesn't speak HTTP/2.
pub fn is_no_http2(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if matches!(error.downcast_ref(), Some(RoadError::NoHttp2)) {
            return true;
        }
        let refused = |e: &rustls::Error| {
            matches!(e, rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol))
        };
        // An error of TLS comes as the inner one of an I/O error.
        let inner = error.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        if error.downcast_ref().is_some_and(refused) || inner.and_then(|e| e.downcast_ref()).is_some_and(refused) {
            return true;
        }
        next = error.source();
    }
    false
}
