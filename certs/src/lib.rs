//! Certificates of the webhook ([`material`]): [`issue`] issues them, [`rotation`] decides what is
//! due (pure), [`secret`] stores them, [`inject`] injects the CA bundle, [`resolver`] serves them,
//! and [`manager`] does all of that. [`follow_secret`] serves those of another process.

mod follow;
pub mod inject;
pub mod issue;
pub mod manager;
pub mod material;
pub mod resolver;
pub mod rotation;
pub mod secret;

pub use follow::follow_secret;
pub use manager::{CertificateError, CertificateManager, CertificateSource, CertificateState, Settings};
pub use resolver::CertificateResolver;
