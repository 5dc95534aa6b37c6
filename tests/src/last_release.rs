//! The last released version of the product: its chart, and its binaries.

use std::path::{Path, PathBuf};

use crate::kubelet::Images;
use crate::product::images::{OPERATOR_IMAGE, WEBHOOK_IMAGE};
use crate::project;

/// Its version.
pub const VERSION: &str = "0.2.0";
/// The variable that names the folder of its binaries: see `tests/package/last-release.sh`.
pub const FOLDER: &str = "LAST_RELEASE";

/// Its chart, as it was packaged.
pub fn chart() -> String {
    project().join(format!("tests/charts/knative-operator-{VERSION}.tgz")).display().to_string()
}

/// Its binaries in place of the images of the chart; `None` if [`FOLDER`] is not set.
pub fn images() -> Option<Images> {
    let folder = PathBuf::from(std::env::var_os(FOLDER).filter(|folder| !folder.is_empty())?);
    let binary = |image: &str, name: &str| (image.to_owned(), Path::new(&folder).join(name));
    Some([binary(OPERATOR_IMAGE, "knative-operator"), binary(WEBHOOK_IMAGE, "knative-operator-webhook")].into())
}
