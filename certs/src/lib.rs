//! Certificates of the webhook ([`material`]): [`issue`] issues them, [`rotation`] decides what is
//! due and [`validity`] when they are valid (pure), [`secret`] stores them, [`inject`] injects the
//! CA bundle, [`resolver`] serves them, and [`manager`] does all of that. [`follow_secret`] serves
//! those of another process. [`retreat_with_namespace`] deletes the webhook configurations when the
//! webhook goes for good.

mod follow;
pub mod inject;
pub mod issue;
pub mod manager;
pub mod material;
pub mod resolver;
mod retreat;
pub mod rotation;
pub mod secret;
pub mod validity;

pub use follow::follow_secret;
pub use manager::{CertificateError, CertificateManager, CertificateSource, CertificateState, Report, Settings};
pub use resolver::CertificateResolver;
pub use retreat::retreat_with_namespace;
pub use validity::Validity;
