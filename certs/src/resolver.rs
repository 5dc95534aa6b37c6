//! The served certificate, which can be replaced while connections are open.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The served certificate. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct CertificateResolver(Arc<ArcSwapOption<CertifiedKey>>);

/// Why a certificate can't be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Its PEM is invalid.
    #[error("the certificate or its key is not PEM")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// Its key is invalid.
    #[error("invalid key")]
    Key(#[from] rustls::Error),
}

impl CertificateResolver {
    /// Serves the certificate and key in PEM from the next handshake on. Returns whether it
    /// changed.
    pub fn set(&self, chain: &str, key: &str) -> Result<bool, ServeError> {
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        if self.0.load().as_ref().is_some_and(|served| served.cert == chain) {
            return Ok(false);
        }
        self.0.store(Some(Arc::new(certified(chain, key)?)));
        Ok(true)
    }

    /// Whether the certificate and key in PEM could be served.
    pub fn check(chain: &str, key: &str) -> Result<(), ServeError> {
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        certified(chain, key).map(drop)
    }
}

fn certified(chain: Vec<CertificateDer<'static>>, key: &str) -> Result<CertifiedKey, ServeError> {
    let key = any_supported_type(&PrivateKeyDer::from_pem_slice(key.as_bytes())?)?;
    let certified = CertifiedKey::new(chain, key);
    certified.keys_match()?;
    Ok(certified)
}

impl ResolvesServerCert for CertificateResolver {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}
