//! Forward proxies for clusters behind a firewall: CONNECT over HTTP or HTTPS, and SOCKS5.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::{Engine, prelude::BASE64_STANDARD};
use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, copy_bidirectional};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

use crate::Result;
use crate::pki::Issued;

/// The login of all proxies except SOCKS5.
pub const LOGIN: &str = "hub:s3cret-of-the-proxy";

/// Addresses of names that only a proxy knows.
pub type Hosts = BTreeMap<&'static str, SocketAddr>;

/// A forward proxy on the loopback network. Dropping it stops it.
pub struct Proxy {
    /// Its address.
    pub address: SocketAddr,
    passed: Arc<AtomicUsize>,
    accept: JoinHandle<()>,
}

/// Protocol of a proxy.
#[derive(Clone)]
pub enum Protocol {
    /// CONNECT over HTTP.
    Http,
    /// CONNECT over HTTPS.
    Https(TlsAcceptor),
    /// SOCKS5 without a login.
    Socks5,
}

impl Protocol {
    /// CONNECT over HTTPS with the certificate `issued`.
    pub fn https(issued: &Issued) -> Result<Self> {
        let chain =
            CertificateDer::pem_slice_iter(issued.certificate.as_bytes()).collect::<std::result::Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes())?;
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key)?;
        Ok(Self::Https(TlsAcceptor::from(Arc::new(config))))
    }
}

impl Proxy {
    /// Starts a proxy.
    pub async fn start(protocol: Protocol) -> Result<Self> {
        Self::with_hosts(protocol, Hosts::new()).await
    }

    /// Starts a proxy that knows the addresses of `hosts`, for all ports.
    pub async fn with_hosts(protocol: Protocol, hosts: Hosts) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, passed) = (listener.local_addr()?, Arc::new(AtomicUsize::new(0)));
        let (counted, hosts) = (Arc::clone(&passed), Arc::new(hosts));
        let accept = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (protocol, counted, hosts) = (protocol.clone(), Arc::clone(&counted), Arc::clone(&hosts));
                // A connection that ends early ended with its client.
                tokio::spawn(async move { serve(stream, protocol, &counted, &hosts).await.ok() });
            }
        });
        Ok(Self { address, passed, accept })
    }

    /// Number of connections through it.
    pub fn passed(&self) -> usize {
        self.passed.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

async fn serve(mut stream: TcpStream, protocol: Protocol, passed: &AtomicUsize, hosts: &Hosts) -> Result<()> {
    match protocol {
        Protocol::Http => connect(stream, passed, hosts).await,
        Protocol::Https(acceptor) => connect(acceptor.accept(stream).await?, passed, hosts).await,
        Protocol::Socks5 => {
            let target = socks(&mut stream).await?;
            passed.fetch_add(1, Ordering::Relaxed);
            pass(stream, &target, hosts).await
        }
    }
}

async fn pass(mut stream: impl AsyncRead + AsyncWrite + Unpin, target: &str, hosts: &Hosts) -> Result<()> {
    let mut server = match target.rsplit_once(':').and_then(|(host, _)| hosts.get(host)) {
        Some(address) => TcpStream::connect(address).await?,
        None => TcpStream::connect(target).await?,
    };
    Ok(copy_bidirectional(&mut stream, &mut server).await.map(drop)?)
}

/// Bytes of a request without its body.
const HEAD: usize = 1 << 16;

async fn connect(mut stream: impl AsyncRead + AsyncWrite + Unpin, passed: &AtomicUsize, hosts: &Hosts) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await?);
        if head.len() > HEAD {
            return Err("a request without an end".into());
        }
    }
    let head = String::from_utf8(head)?;
    let login = format!("Basic {}", BASE64_STANDARD.encode(LOGIN));
    if !head.lines().any(|line| line.to_ascii_lowercase().starts_with("proxy-authorization:") && line.ends_with(&login))
    {
        return Ok(stream
            .write_all(b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n")
            .await?);
    }
    let target = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(' ').next()).ok_or("no CONNECT")?.to_owned();
    stream.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await?;
    passed.fetch_add(1, Ordering::Relaxed);
    pass(stream, &target, hosts).await
}

/// RFC 1928, CONNECT to an IPv4 address or a name; the target.
async fn socks(stream: &mut TcpStream) -> Result<String> {
    let mut hello = [0; 2];
    stream.read_exact(&mut hello).await?;
    let mut methods = vec![0; usize::from(hello[1])];
    stream.read_exact(&mut methods).await?;
    stream.write_all(&[5, 0]).await?;
    let mut request = [0; 4];
    stream.read_exact(&mut request).await?;
    let host = match request[3] {
        1 => Ipv4Addr::from(stream.read_u32().await?).to_string(),
        3 => {
            let mut name = vec![0; usize::from(stream.read_u8().await?)];
            stream.read_exact(&mut name).await?;
            String::from_utf8(name)?
        }
        other => return Err(format!("address type {other}").into()),
    };
    let port = stream.read_u16().await?;
    stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?;
    Ok(format!("{host}:{port}"))
}
