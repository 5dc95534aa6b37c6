//! Release bundles: a directory of Knative's released manifests, in the layout that the Go operator uses.
//!
//! `knative-serving/<version>/`, `knative-eventing/<version>/`, `ingress/<minor>/<name>/`, `eventing-source/<minor>/<name>/`;
//! every file of a directory is read, in the order of names.

mod assemble;
mod bundle;
mod parse;

pub use assemble::objects;
pub use bundle::Bundle;
