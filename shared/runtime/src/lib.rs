//! The runtime that both processes share: [`admin`] serves health and metrics, [`tls_server`]
//! serves over TLS, [`access`] asks the API server about users, [`ready`] is the readiness,
//! [`process`], [`log`], [`trace`] and [`signal`] set up a process, [`hub`] builds the client of
//! the hub ([`gate`]: what it sends on a condition, [`fence`]: on that of a Lease) and [`user`]
//! that of a user, [`identity`] has user agent and field manager, [`untyped`] and [`watch`] read
//! objects, [`inventory`] those of the Cluster Inventory API, [`body`] limits responses
//! ([`deadline`]: their time), [`backoff`] says when to try again ([`constant_backoff`]: of a
//! watch), [`error_text`] formats errors, `connect_error` those of connections, [`json_response`]
//! answers in JSON.

pub mod access;
pub mod admin;
pub mod backoff;
pub mod body;
mod connect_error;
pub mod constant_backoff;
pub mod deadline;
pub mod duration;
pub mod error_text;
pub mod fence;
pub mod gate;
pub mod hub;
pub mod identity;
pub mod inventory;
mod json_lines;
pub mod json_response;
pub mod log;
mod metrics_access;
pub mod process;
pub mod ready;
pub mod signal;
pub mod tls_server;
pub mod trace;
pub mod untyped;
pub mod user;
pub mod watch;

pub use error_text::error_text;

/// Installs `ring` as the crypto provider. Call it first in `main`: rustls can't choose if two are
/// linked.
pub fn install_crypto() {
    // Err means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
