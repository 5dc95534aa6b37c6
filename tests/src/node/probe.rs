//! Readiness probes.

use std::fmt::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::{Container, Probe};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, SignatureScheme};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::Result;

/// Time limit of a probe.
const LIMIT: Duration = Duration::from_secs(5);

/// Whether `container` at `address` is ready.
pub async fn is_ready(container: &Container, address: Ipv4Addr) -> bool {
    match &container.readiness_probe {
        Some(probe) => tokio::time::timeout(LIMIT, succeeds(probe, container, address)).await.is_ok_and(|r| r.is_ok()),
        None => true,
    }
}

async fn succeeds(probe: &Probe, container: &Container, address: Ipv4Addr) -> Result<()> {
    if let Some(http) = &probe.http_get {
        let target = SocketAddr::new(address.into(), number(&http.port, container).ok_or("no such port")?);
        let mut request = format!("GET {} HTTP/1.1\r\nConnection: close\r\n", http.path.as_deref().unwrap_or("/"));
        let headers = http.http_headers.iter().flatten();
        for header in headers.clone() {
            let _ = write!(request, "{}: {}\r\n", header.name, header.value);
        }
        if !headers.clone().any(|header| header.name.eq_ignore_ascii_case("host")) {
            let _ = write!(request, "Host: {target}\r\n");
        }
        request.push_str("User-Agent: kube-probe/1.36\r\n\r\n");
        let stream = TcpStream::connect(target).await?;
        if http.scheme.as_deref() != Some("HTTPS") {
            return exchange(stream, &request).await;
        }
        let config = ClientConfig::builder()
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate))
            .with_no_client_auth();
        let name = ServerName::IpAddress(std::net::IpAddr::from(address).into());
        return exchange(TlsConnector::from(Arc::new(config)).connect(name, stream).await?, &request).await;
    }
    let port = match (&probe.grpc, &probe.tcp_socket) {
        (Some(grpc), _) => u16::try_from(grpc.port)?,
        (None, Some(tcp)) => number(&tcp.port, container).ok_or("no such port")?,
        (None, None) => return Err("unsupported probe".into()),
    };
    TcpStream::connect(SocketAddr::new(address.into(), port)).await?;
    Ok(())
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> Result<()> {
    stream.write_all(request.as_bytes()).await?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await?;
    if matches!(answer.get(9), Some(b'2' | b'3')) { Ok(()) } else { Err("not ready".into()) }
}

fn number(port: &IntOrString, container: &Container) -> Option<u16> {
    match port {
        IntOrString::Int(number) => u16::try_from(*number).ok(),
        IntOrString::String(name) => {
            let named = container.ports.iter().flatten().find(|port| port.name.as_ref() == Some(name))?;
            u16::try_from(named.container_port).ok()
        }
    }
}

/// Kubelet doesn't verify the certificates of probes.
#[derive(Debug)]
struct AnyCertificate;

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        rustls::crypto::ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
