//! The pure part that webhook and operator share.
//!
//! [`api`] has the custom resources, [`crd`] their CustomResourceDefinitions, [`condition`] and
//! [`reason`] the status, [`version`] Knative versions and their order, [`way`] those between two,
//! [`fleet`] placement, stages and content of fleets, [`name`] and [`label`] the names that users
//! and other tools rely on, [`text`] the limits of messages, [`redact`] what they must not contain,
//! [`yaml`] YAML as Kubernetes reads it, [`strict`] JSON without guesses, [`json`] the memory that
//! it takes, [`syntax`] names in the Kubernetes API.
//!
//! Invariant: this crate does no I/O and reads neither the clock nor the environment.

pub mod api;
pub mod condition;
pub mod crd;
pub mod defaults;
pub mod fleet;
pub mod fleet_crd;
pub mod json;
pub mod label;
pub mod name;
pub mod reason;
pub mod redact;
pub mod strict;
pub mod syntax;
pub mod text;
pub mod time;
pub mod version;
pub mod way;
pub mod yaml;
