//! Connects to the clusters of ClusterProfiles ([KEP-4322], [KEP-5339]).
//!
//! A ClusterProfile on a hub says where a cluster is and which access providers have a credential
//! for it; a *provider file* says how the program gets a credential from a provider: from a
//! credential plugin, or from a Secret. This crate reads both and returns a [`kube::Client`], whose
//! credential is renewed. It is to Rust what `sigs.k8s.io/cluster-inventory-api/pkg/access` is to
//! Go, with the connections; it knows nothing of Knative.
//!
//! ```no_run
//! # use std::{path::Path, sync::Arc, time::Duration};
//! # use knative_operator_cluster_access::*;
//! # use {connections::*, credential::*, provider::*, secret::*};
//! # async fn example(hub: kube::Client) -> Result<(), Box<dyn std::error::Error>> {
//! let providers = Providers::read(Path::new("clusterprofile-provider-file.json"))?;
//! let secrets = SecretReader {
//!     hub: hub.clone(),
//!     namespace: hub.default_namespace().to_owned(),
//!     requires_binding: true,
//!     annotations: Annotations {
//!         profiles: "example.com/cluster-profile",
//!         servers: "example.com/server",
//!         sent_to: "example.com/sent-to",
//!     },
//!     program: "example",
//! };
//! let timeout = Duration::from_secs(10);
//! let fetcher = CredentialFetcher { secrets, timeout, metrics: Arc::new(Unmeasured) };
//! let connections = Connections::new(fetcher, Arc::new(|| true));
//!
//! for object in inventory::InventoryKind::ClusterProfile.list(&hub, None).await? {
//!     let profile = ClusterProfile::read(&object);
//!     let reference = profile.reference();
//!     let access = profile::access(&reference, &profile, &providers, false)?;
//!     let connection = connections.get(&reference, access, false).await;
//!     let client = connection.map_err(|failure| failure.error)?.client;
//!     println!("{reference}: {}", client.apiserver_version().await?.git_version);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! [`inventory`] reads ClusterProfiles in the newest version that the hub serves, [`profiles`]
//! keeps them, [`provider`] reads the provider file, and [`profile::access`] derives how to connect
//! (pure; [`address`] parses its URLs). [`exec`] runs credential plugins, [`secret`] reads Secrets
//! for the [`builtin`] providers (`binding` decides who gets which Secret, `named_secrets` finds
//! those that a plugin could read), [`credential`] caches credentials, [`transport`] is the HTTP
//! client (with `tls`; `connector`: TCP and proxies), and [`connections`] keeps one connection per
//! cluster, which [`identity`] tells apart; [`connection_report`] is its state for people.
//! [`AccessError`] says why a cluster can't be used.
//!
//! [KEP-4322]: https://github.com/kubernetes/enhancements/issues/4322
//! [KEP-5339]: https://github.com/kubernetes/enhancements/issues/5339

pub mod address;
mod binding;
pub mod builtin;
pub mod connection_report;
pub mod connections;
mod connector;
pub mod credential;
mod error;
pub mod exec;
pub mod identity;
mod metrics;
mod named_secrets;
mod pings;
pub mod profile;
pub mod profiles;
pub mod provider;
mod same_cluster;
pub mod secret;
mod tls;
pub mod transport;

pub use binding::Annotations;
pub use error::{AccessError, Reason};
pub use knative_operator_base::cluster_profile::{ClusterProfile, ClusterProfileReference};
pub use knative_operator_client::{backoff, gate, inventory};
pub use metrics::{ClusterMetrics, Unmeasured};
