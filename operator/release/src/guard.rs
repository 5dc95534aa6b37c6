//! Selects the release of the security guard for a version of Serving.

use std::path::PathBuf;

use knative_operator_shared::api::Knative;
use knative_operator_shared::version::Version;

use super::bundle::{Bundle, ReleaseError};

/// Directory of the guard, if `resource` enables it: 0.6 for Serving 1.20 to 1.23, the newest in
/// the bundle for others.
pub fn directory(bundle: &Bundle, resource: &Knative, version: &Version) -> Result<Option<PathBuf>, ReleaseError> {
    if !resource.has_guard() {
        return Ok(None);
    }
    if !version.at_least(1, 8) {
        return Err(ReleaseError::Source {
            field: "spec.security.securityGuard".to_owned(),
            why: format!(
                "the current version of Knative Serving is {}. You need to install the version 1.8 or above to support the security guard",
                version.minor()
            ),
        });
    }
    let guard =
        if version.at_least(1, 20) && !version.at_least(1, 24) { "0.6".to_owned() } else { bundle.newest_guard()? };
    Ok(Some(bundle.root().join("security-guard").join(guard)))
}
