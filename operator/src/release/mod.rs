//! Release bundles: a directory of Knative's released manifests, in the layout that the Go operator uses.
//!
//! `knative-serving/<version>/`, `knative-eventing/<version>/`, `ingress/<minor>/<name>/`, `eventing-source/<minor>/<name>/`,
//! `security-guard/<minor>/`; every file of a directory is read, in the order of names. And what a spec names besides:
//! URLs, and further files of the bundle.

mod assemble;
mod bundle;
mod choose;
mod download;
mod guard;
mod parse;
mod source;

pub use assemble::{Library, Release};
pub use bundle::{Bundle, ReleaseError};
pub use choose::{NoVersion, version};
pub use download::{DownloadError, Downloads, DownloadsError};
pub use parse::objects as parse;
