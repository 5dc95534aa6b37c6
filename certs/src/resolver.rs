//! The certificate that is served, exchanged under live connections.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::crypto::ring::sign::any_supported_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

/// The certificate that is served now. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Served(Arc<ArcSwapOption<CertifiedKey>>);

/// Why a certificate can't be served.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// Its PEM is broken.
    #[error("the certificate or its key is no PEM")]
    Pem(#[from] rustls::pki_types::pem::Error),
    /// Its key is of no use.
    #[error("the key can't be used")]
    Key(#[from] rustls::Error),
}

impl Served {
    /// Serves the certificate and the key in PEM from the next handshake on. Whether it is another one than before.
    pub fn set(&self, chain: &str, key: &str) -> Result<bool, ServeError> {
        let chain = CertificateDer::pem_slice_iter(chain.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        if self.0.load().as_ref().is_some_and(|served| served.cert == chain) {
            return Ok(false);
        }
        let key = any_supported_type(&PrivateKeyDer::from_pem_slice(key.as_bytes())?)?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match()?;
        self.0.store(Some(Arc::new(certified)));
        Ok(true)
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}
