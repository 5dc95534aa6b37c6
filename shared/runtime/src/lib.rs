//! The runtime that both processes share: [`admin`] serves health and metrics, [`ready`] is the
//! readiness, [`process`], [`log`] and [`signal`] set up a process, [`hub`] builds the client of
//! the hub and [`user`] that of a user, [`identity`] has user agent and field manager,
//! [`error_text`] formats errors.

pub mod admin;
pub mod duration;
pub mod error_text;
pub mod hub;
pub mod identity;
pub mod log;
pub mod process;
pub mod ready;
pub mod signal;
pub mod user;

pub use error_text::error_text;

/// Installs `ring` as the crypto provider. Call it first in `main`: rustls can't choose if two are
/// linked.
pub fn install_crypto() {
    // Err means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
