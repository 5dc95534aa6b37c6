//! Files of a release that are derived from the rendered chart.

pub mod krew;
pub mod olm;
pub mod provenance;

/// The project's address.
pub const REPOSITORY: &str = "https://github.com/knative-operator-rs/knative-operator";
