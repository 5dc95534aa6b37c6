//! Connections to spokes.
//!
//! [`provider`] reads the provider file, [`profile`] derives from a ClusterProfile how to connect
//! (pure; [`address`] parses its URLs), [`profiles`] has the ClusterProfiles of the hub, [`exec`]
//! runs credential plugins, [`secret`] is the built-in provider ([`binding`] decides who gets which
//! Secret, [`named_secrets`] finds those that a plugin could read), [`credential`] caches
//! credentials, [`transport`] is the HTTP client (with [`tls`]; [`connector`]: TCP and proxies),
//! and [`connections`] keeps one connection per spoke, which [`identity`] tells apart;
//! [`connection_report`] is its state for people.

pub mod address;
mod binding;
pub mod connection_report;
pub mod connections;
mod connector;
pub mod credential;
pub mod exec;
pub mod identity;
mod metrics;
mod named_secrets;
pub mod profile;
pub mod profiles;
pub mod provider;
pub mod secret;
mod tls;
pub mod transport;
mod unresolved;

pub use metrics::{ClusterMetrics, Unmeasured};
pub use unresolved::Unresolved;
