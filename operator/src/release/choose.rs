//! Selects the version that a resource asks for, and checks whether it is allowed.

use knative_operator_shared::api::Knative;
use knative_operator_shared::version::{Version, VersionError};

use super::bundle::{Bundle, ReleaseError};

/// Why no version can be installed.
#[derive(Debug, thiserror::Error)]
pub enum VersionSelectionError {
    /// The version may not follow the installed one, or is invalid.
    #[error(transparent)]
    Ineligible(VersionError),
    /// The bundle lacks the version.
    #[error(transparent)]
    Unavailable(VersionError),
    /// The bundle can't be read.
    #[error(transparent)]
    Bundle(#[from] ReleaseError),
}

/// Selects the version of `resource` to install from `bundle`: the installed one, unless the spec
/// means another one.
pub fn select_version(bundle: &Bundle, resource: &Knative) -> Result<Version, VersionSelectionError> {
    // One that can't be read is not the same as none.
    let installed = resource.status().and_then(|s| s.version.as_deref()).map(str::parse).transpose();
    select_version_after(bundle, resource, installed.map_err(VersionSelectionError::Ineligible)?.as_ref())
}

/// The same, where `installed` is installed.
pub fn select_version_after(
    bundle: &Bundle,
    resource: &Knative,
    installed: Option<&Version>,
) -> Result<Version, VersionSelectionError> {
    let (component, common) = (resource.component(), resource.common());
    let available = bundle.versions(component);
    let asked = common.version.as_deref();
    let version = if common.manifests.is_empty() {
        Version::resolve_after(asked, installed, &available?)
    } else {
        // Own manifests need no bundle.
        Version::verbatim(asked, installed, &available.unwrap_or_default())
    };
    let version = version.map_err(|error| match error {
        VersionError::Unavailable { .. } => VersionSelectionError::Unavailable(error),
        other => VersionSelectionError::Ineligible(other),
    })?;
    version.may_follow(installed, component.kind()).map_err(VersionSelectionError::Ineligible)?;
    Ok(version)
}
