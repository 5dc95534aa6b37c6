//! Verifies the certificates of clients with the authorities in a file, also after it changes.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{VerifierBuilderError, WebPkiClientVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};

use crate::error_text;

/// Accepts clients with a certificate of an authority in a file.
#[derive(Debug)]
pub struct ClientCa {
    file: PathBuf,
    current: Mutex<Current>,
}

/// The authorities that are in use.
#[derive(Debug)]
struct Current {
    /// When the file was modified.
    modified: Option<SystemTime>,
    verifier: Arc<dyn ClientCertVerifier>,
}

/// Why there are no authorities.
#[derive(Debug, thiserror::Error)]
pub enum ClientCaError {
    /// The file can't be read.
    #[error("cannot read {0}")]
    Read(PathBuf, #[source] std::io::Error),
    /// The file has no PEM.
    #[error("{0} is not PEM")]
    Pem(PathBuf, #[source] pem::Error),
    /// A certificate is invalid.
    #[error("{0} has an invalid certificate")]
    Certificate(PathBuf, #[source] Error),
    /// The file has no certificate.
    #[error("{0} has no usable certificate")]
    Empty(PathBuf, #[source] VerifierBuilderError),
}

impl ClientCa {
    /// Reads the authorities in `file` (PEM).
    pub fn read(file: PathBuf) -> Result<Self, ClientCaError> {
        let current = Mutex::new(Current { modified: modified(&file), verifier: load(&file)? });
        Ok(Self { file, current })
    }

    /// Verifies with the current contents of the file; if they are invalid, with the last valid
    /// ones.
    fn verifier(&self) -> Arc<dyn ClientCertVerifier> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let modified = modified(&self.file);
        if modified != current.modified {
            current.modified = modified;
            match load(&self.file) {
                Ok(verifier) => {
                    tracing::info!("read the changed authorities of clients");
                    current.verifier = verifier;
                }
                Err(error) => {
                    let error = error_text(&error);
                    tracing::warn!(error, "the authorities of clients are invalid; the last valid ones stay in use");
                }
            }
        }
        Arc::clone(&current.verifier)
    }
}

fn modified(file: &Path) -> Option<SystemTime> {
    std::fs::metadata(file).and_then(|metadata| metadata.modified()).ok()
}

fn load(file: &Path) -> Result<Arc<dyn ClientCertVerifier>, ClientCaError> {
    let text = std::fs::read(file).map_err(|error| ClientCaError::Read(file.to_owned(), error))?;
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(&text) {
        let certificate = certificate.map_err(|error| ClientCaError::Pem(file.to_owned(), error))?;
        roots.add(certificate).map_err(|error| ClientCaError::Certificate(file.to_owned(), error))?;
    }
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build();
    verifier.map_err(|error| ClientCaError::Empty(file.to_owned(), error))
}

impl ClientCertVerifier for ClientCa {
    /// None: they may change, and an API server has only one certificate for the webhook.
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        certificate: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verifier().verify_client_cert(certificate, intermediates, now)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier().verify_tls12_signature(message, certificate, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier().verify_tls13_signature(message, certificate, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier().supported_verify_schemes()
    }
}
