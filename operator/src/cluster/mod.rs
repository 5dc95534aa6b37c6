//! Connections to spokes.
//!
//! [`provider`] reads the provider file, [`profile`] derives from a ClusterProfile how to connect
//! (pure; [`address`] parses its URLs), [`exec`] runs credential plugins, [`secret`] is the
//! built-in provider, [`credential`] caches credentials, [`transport`] is the HTTP client (with
//! [`tls`]; [`connector`]: TCP and proxies; [`body`]: limits), and [`connections`] keeps one
//! connection per spoke.

pub mod address;
mod body;
pub mod connections;
mod connector;
pub mod credential;
pub mod exec;
mod metrics;
pub mod profile;
pub mod provider;
mod secret;
mod tls;
pub mod transport;
mod unresolved;

pub use metrics::ClusterMetrics;
pub use unresolved::Unresolved;
