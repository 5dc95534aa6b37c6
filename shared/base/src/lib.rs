//! What the Kubernetes API has of itself, without Knative: [`cluster_profile`] has ClusterProfiles,
//! [`strict`] reads JSON without guesses, [`json`] is the memory that it takes, [`syntax`] has
//! names in the Kubernetes API, [`text`] the limits of messages, [`redact`] what they must not
//! contain.
//!
//! Invariant: this crate does no I/O, reads neither the clock nor the environment, and knows
//! nothing of Knative.

pub mod cluster_profile;
pub mod json;
pub mod redact;
pub mod strict;
pub mod syntax;
pub mod text;
