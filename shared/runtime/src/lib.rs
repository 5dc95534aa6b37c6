//! The runtime that both processes share: [`admin`] serves health and metrics, [`tls_server`]
//! serves over TLS, [`access`] asks the API server about users, [`ready`] is the readiness,
//! [`process`], [`log`], [`trace`] and [`signal`] set up a process, [`hub`] builds the client of
//! the hub ([`fence`]: what it sends on the condition of a Lease) and [`user`] that of a user,
//! [`untyped`] reads objects, [`constant_backoff`] says when to try a watch again,
//! [`watch_activity`] is what a watch does, `connect_error` formats errors of connections,
//! [`compute`] limits what takes the processor for long, [`queues`] keep one from keeping others
//! waiting, [`json_response`] answers in JSON, `spaced` answers what takes long to make, [`rarely`]
//! limits what is logged. What is not of our processes is in [`knative_operator_client`], and here,
//! too.

pub mod access;
pub mod admin;
pub mod compute;
mod connect_error;
pub mod constant_backoff;
pub mod duration;
pub mod fence;
pub mod hub;
mod json_lines;
pub mod json_response;
pub mod log;
mod metrics_access;
pub mod process;
pub mod queues;
pub mod rarely;
pub mod ready;
pub mod signal;
mod spaced;
pub mod tls_server;
pub mod trace;
pub mod untyped;
pub mod user;
pub mod watch_activity;

pub use knative_operator_client::{backoff, body, deadline, error_text, gate, identity, inventory, watch};

/// Installs `ring` as the crypto provider. Call it first in `main`: rustls can't choose if two are
/// linked.
pub fn install_crypto() {
    // Err means that one is installed already.
    let _ = rustls::crypto::ring::default_provider().install_default();
}
