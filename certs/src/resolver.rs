//! The certificate that is served, exchanged under live connections.

use std::sync::Arc;

use arc_swap::ArcSwapOption;
use rustls::crypto::ring::sign::any_ecdsa_type;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;

use crate::issue::Material;

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
    /// Serves `material` from the next handshake on.
    pub fn set(&self, material: &Material) -> Result<(), ServeError> {
        let chain = CertificateDer::pem_slice_iter(material.leaf.as_bytes()).collect::<Result<Vec<_>, _>>()?;
        let key = any_ecdsa_type(&PrivateKeyDer::from_pem_slice(material.leaf_key.as_bytes())?)?;
        let certified = CertifiedKey::new(chain, key);
        certified.keys_match()?;
        self.0.store(Some(Arc::new(certified)));
        Ok(())
    }

    /// Whether there is a certificate to serve.
    pub fn any(&self) -> bool {
        self.0.load().is_some()
    }
}

impl ResolvesServerCert for Served {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        self.0.load_full()
    }
}
