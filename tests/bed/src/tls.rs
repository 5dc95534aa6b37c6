//! A TLS client without certificate verification, to call a process directly.

use std::sync::Arc;

use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use rustls::client::WantsClientCert;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::{ClientConfig, ConfigBuilder, DigitallySignedStruct, Error, SignatureScheme};

use crate::Result;
use crate::pki::Issued;

/// TLS settings that accept any certificate.
pub fn insecure_config() -> ClientConfig {
    insecure_builder().with_no_client_auth()
}

/// TLS settings that accept any certificate, for the client with the certificate `issued`.
pub fn insecure_config_as(issued: &Issued) -> Result<ClientConfig> {
    let chain = CertificateDer::pem_slice_iter(issued.certificate.as_bytes());
    let chain = chain.collect::<std::result::Result<Vec<_>, _>>()?;
    let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes())?;
    Ok(insecure_builder().with_client_auth_cert(chain, key)?)
}

fn insecure_builder() -> ConfigBuilder<ClientConfig, WantsClientCert> {
    let _ = ring::default_provider().install_default();
    ClientConfig::builder().dangerous().with_custom_certificate_verifier(Arc::new(AcceptAnyCertificate))
}

/// A connector that accepts any certificate, for HTTP/1.1.
pub fn insecure_connector() -> HttpsConnector<HttpConnector> {
    HttpsConnectorBuilder::new().with_tls_config(insecure_config()).https_only().enable_http1().build()
}

#[derive(Debug)]
struct AcceptAnyCertificate;

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> std::result::Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        ring::default_provider().signature_verification_algorithms.supported_schemes()
    }
}
