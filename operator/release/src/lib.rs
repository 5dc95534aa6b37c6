//! Releases: directories of Knative's released manifests in the layout of the Go operator, and
//! manifests that a spec names. An archive on the hub keeps the releases in use for operators whose
//! bundle lacks them.
//!
//! `knative-serving/<version>/`, `knative-eventing/<version>/`, `ingress/<minor>/<name>/`,
//! `eventing-source/<minor>/<name>/`, `security-guard/<minor>/`. Every file of a directory is read,
//! ordered by name. A spec may name URLs and further files of the bundle.

mod archive;
mod assemble;
mod bundle;
mod catalog;
mod choose;
mod download;
mod guard;
mod host_policy;
mod parse;
mod source;

pub use archive::Archive;
pub use assemble::{Library, Release};
pub use bundle::{BUNDLE_HINT, Bundle, Objects, ReleaseError, family};
pub use catalog::catalog;
pub use choose::{VersionSelectionError, select_version, select_way, select_way_after};
pub use download::{DownloadError, Downloads, DownloadsError};
pub use host_policy::{AllowedHost, HostPolicy};
pub use parse::objects as parse;
