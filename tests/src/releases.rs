//! The release bundle that a test or the demo installs.

use std::path::PathBuf;
use std::sync::LazyLock;

use crate::outside;
use crate::project;

/// A bundle, and versions in it.
#[derive(Clone, Debug)]
pub struct Releases {
    /// Folder of the bundle.
    pub dir: PathBuf,
    /// Whether it has Knative's own releases.
    pub real: bool,
    /// Version of Serving.
    pub serving: &'static str,
    /// Version of Eventing.
    pub eventing: &'static str,
}

/// Knative's own releases, from `tests/package/releases.sh`.
///
/// # Panics
///
/// Panics with the script's message if the releases can't be obtained.
pub fn best() -> Releases {
    static FOLDER: LazyLock<Result<PathBuf, String>> =
        LazyLock::new(|| outside::folder_of("tests/package/releases.sh", None).map_err(|e| e.to_string()));
    let dir = FOLDER.clone();
    assert!(dir.is_ok(), "Knative's releases are missing: {}", dir.unwrap_err());
    Releases { dir: dir.unwrap_or_default(), real: true, serving: "1.22.1", eventing: "1.22.2" }
}

/// The project's small release, for what Knative never released.
pub fn small() -> Releases {
    Releases { dir: project().join("tests/release"), real: false, serving: "1.1.0", eventing: "1.1.0" }
}
