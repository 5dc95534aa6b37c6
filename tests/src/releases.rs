//! The release bundle that a test or the demo installs.

use std::path::PathBuf;

use crate::tools::project;

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

/// Knative's own releases if `../shared` exists, else the project's small one.
pub fn best() -> Releases {
    let dir = project().join("../shared/releases");
    if dir.is_dir() { Releases { dir, real: true, serving: "1.22.1", eventing: "1.22.2" } } else { small() }
}

/// What the demo installs: Knative's own release from `../shared` or from `KNATIVE_RELEASES`, which
/// `make demo` downloads, else the project's small one.
pub fn for_demo() -> Releases {
    let downloaded = std::env::var_os("KNATIVE_RELEASES").filter(|folder| !folder.is_empty()).map(PathBuf::from);
    match (best(), downloaded) {
        (Releases { real: false, .. }, Some(dir)) => {
            Releases { dir, real: true, serving: "1.22.1", eventing: "1.22.1" }
        }
        (best, _) => best,
    }
}

/// The project's small release.
pub fn small() -> Releases {
    Releases { dir: project().join("tests/release"), real: false, serving: "1.1.0", eventing: "1.1.0" }
}
