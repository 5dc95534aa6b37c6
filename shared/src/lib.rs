//! The pure part that webhook and operator share.
//!
//! [`api`] has the custom resources, [`crd`] their CustomResourceDefinitions, [`condition`] and
//! [`reason`] the status, [`version`] Knative versions and their order, [`way`] those between two,
//! [`fleet`] placement, stages and content of fleets, [`name`] and [`label`] the names that users
//! and other tools rely on, [`yaml`] YAML as Kubernetes reads it. What is not Knative's is in
//! [`knative_operator_base`], and here, too.
//!
//! Invariant: this crate does no I/O and reads neither the clock nor the environment.

pub mod api;
pub mod condition;
pub mod crd;
pub mod defaults;
pub mod fleet;
pub mod fleet_crd;
pub mod label;
pub mod name;
pub mod reason;
pub mod time;
pub mod version;
pub mod way;
pub mod yaml;

pub use knative_operator_base::{json, redact, strict, syntax, text};
