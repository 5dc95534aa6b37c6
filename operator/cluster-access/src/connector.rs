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
use knative_operator_client::tcp::tcp;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use secrecy::ExposeSecret;
use tokio::net::TcpStream;
use tower::Service;

use super::address::{Proxy, Scheme};

/// Time limit of a connection attempt, TLS and proxy included.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

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
    /// host, if given; HTTP/2 or HTTP/1.1. `allows_http`: also to a server without TLS.
    pub fn new(
        tls: &ClientConfig,
        name: Option<ServerName<'static>>,
        proxy: Option<&Proxy>,
        (http2, allows_http): (bool, bool),
    ) -> Self {
        let builder = HttpsConnectorBuilder::new().with_tls_config(tls.clone());
        let builder = if allows_http { builder.https_or_http() } else { builder.https_only() };
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
    let tcp = tcp();
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
        let is_refused = matches!(
            error.downcast_ref(),
            Some(rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol))
        );
        if is_refused || matches!(error.downcast_ref(), Some(ConnectError::NoHttp2)) {
            return true;
        }
        // The source of an I/O error is that of its inner error, which may be an I/O error, too.
        next = match error.downcast_ref::<std::io::Error>() {
            Some(error) => error.get_ref().map(|inner| inner as &(dyn std::error::Error + 'static)),
            None => error.source(),
        };
    }
    false
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;
    use crate::builtin::SecretSource;
    use crate::profile::{Access, CredentialSource};

    fn access(server: &Uri) -> Access {
        let source = CredentialSource::Secret(SecretSource::token("p", "s"));
        Access { server: server.clone(), authority: None, server_name: None, insecure: false, proxy: None, source }
    }

    #[tokio::test]
    async fn server_without_tls_needs_permission_and_http_1() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server: Uri = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
        let (config, _) = crate::tls::config(&access(&server), None).unwrap();
        let connect = async |http2: bool, allows_http: bool| {
            SpokeConnector::new(&config, None, None, (http2, allows_http)).call(server.clone()).await.map(drop)
        };
        assert!(connect(false, true).await.is_ok());
        assert!(is_http2_unsupported(&*connect(true, true).await.unwrap_err()));
        assert!(connect(false, false).await.is_err());
    }

    #[tokio::test]
    async fn server_may_have_an_ipv6_address() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        // A machine without IPv6 can't listen.
        let Ok(listener) = tokio::net::TcpListener::bind("[::1]:0").await else { return };
        let url = format!("http://[::1]:{}", listener.local_addr().unwrap().port());
        let server = crate::address::server(&url, true).unwrap();
        let access = access(&server);
        let (config, _) = crate::tls::config(&access, None).unwrap();
        SpokeConnector::new(&config, None, None, (false, true)).call(server).await.map(drop).unwrap();
    }

    #[test]
    fn refused_protocol_is_found_in_each_depth() {
        let alert = || rustls::Error::AlertReceived(rustls::AlertDescription::NoApplicationProtocol);
        let nested = io::Error::other(io::Error::new(io::ErrorKind::InvalidData, alert()));
        for error in [io::Error::other(alert()), nested, io::Error::other(ConnectError::NoHttp2)] {
            assert!(is_http2_unsupported(&error), "{error:?}");
        }
        let other = rustls::Error::AlertReceived(rustls::AlertDescription::BadCertificate);
        assert!(!is_http2_unsupported(&io::Error::other(other)));
        assert!(!is_http2_unsupported(&io::Error::from(io::ErrorKind::ConnectionRefused)));
    }
}
