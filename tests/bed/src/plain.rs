//! An API server without TLS: passes connections on to one with TLS.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use rustls::pki_types::ServerName;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::Result;
use crate::tls::insecure_config;

/// A server without TLS on the loopback network. Dropping it stops it.
pub struct Plain {
    address: SocketAddr,
    accept: JoinHandle<()>,
}

impl Plain {
    /// Passes connections on to `server`, a URL such as `https://127.0.0.2:6443`.
    pub async fn start(server: &str) -> Result<Self> {
        let target: SocketAddr = server.trim_start_matches("https://").trim_end_matches('/').parse()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, connector) = (listener.local_addr()?, TlsConnector::from(Arc::new(insecure_config())));
        let accept = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let connector = connector.clone();
                // A connection that ends early ended with its client.
                tokio::spawn(async move { pass(stream, target, connector).await.ok() });
            }
        });
        Ok(Self { address, accept })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.accept.abort();
    }
}

async fn pass(mut stream: TcpStream, target: SocketAddr, connector: TlsConnector) -> Result<()> {
    let server = TcpStream::connect(target).await?;
    let mut server = connector.connect(ServerName::from(target.ip()), server).await?;
    Ok(copy_bidirectional(&mut stream, &mut server).await.map(drop)?)
}
