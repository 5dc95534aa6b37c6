//! The pure part that webhook and operator share.
//!
//! [`api`] has the custom resources, [`crd`] their CustomResourceDefinitions, [`condition`] and
//! [`reason`] the status, [`version`] Knative versions and their order, [`rules`] the validation,
//! [`patch`] the patches of `spec.patches`, [`fleet`] placement and stages of fleets, [`name`] and
//! [`label`] the names that users and other tools rely on, [`text`] the limits of messages,
//! [`yaml`] YAML as Kubernetes reads it.
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
pub mod patch;
pub mod reason;
pub mod rules;
pub mod text;
pub mod version;
pub mod yaml;
