//! Which version a resource asks for, and whether it may have it.

use knative_operator_shared::api::Knative;
use knative_operator_shared::version::{Version, VersionError};

use super::bundle::{Bundle, ReleaseError};

/// Why there is no version to install.
#[derive(Debug, thiserror::Error)]
pub enum NoVersion {
    /// It may not follow the installed one, or is none at all.
    #[error(transparent)]
    Ineligible(VersionError),
    /// The bundle doesn't have it.
    #[error(transparent)]
    Unavailable(VersionError),
    /// The bundle can't be read.
    #[error(transparent)]
    Bundle(#[from] ReleaseError),
}

/// The version of `resource` to install, out of `bundle`.
pub fn version(bundle: &Bundle, resource: &Knative) -> Result<Version, NoVersion> {
    let (component, common) = (resource.component(), resource.common());
    let available = bundle.versions(component);
    let asked = common.version.as_deref();
    let version = if common.manifests.is_empty() {
        Version::resolve(asked, &available?)
    } else {
        // What is brought along needs no bundle.
        Version::verbatim(asked, &available.unwrap_or_default())
    };
    let version = version.map_err(|error| match error {
        VersionError::Unavailable { .. } => NoVersion::Unavailable(error),
        other => NoVersion::Ineligible(other),
    })?;
    let installed = resource.status().and_then(|s| s.version.as_deref()).and_then(|v| v.parse().ok());
    version.may_follow(installed.as_ref(), component.kind()).map_err(NoVersion::Ineligible)?;
    Ok(version)
}
