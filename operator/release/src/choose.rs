//! Selects the version that a resource asks for, and checks whether it is allowed.

use knative_operator_shared::api::Knative;
use knative_operator_shared::version::{Version, VersionError};
use knative_operator_shared::way::Way;

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

/// Selects the version of `resource` to install now from `bundle`: the installed one, unless the
/// spec means another one; with `keeps`, also unless it means only another one.
pub fn select_version(bundle: &Bundle, resource: &Knative, keeps: bool) -> Result<Version, VersionSelectionError> {
    select_way(bundle, resource, keeps).map(|way| way.next)
}

/// The same, with the versions after it.
pub fn select_way(bundle: &Bundle, resource: &Knative, keeps: bool) -> Result<Way, VersionSelectionError> {
    // One that can't be read is not the same as none.
    let installed = resource.status().and_then(|s| s.version.as_deref()).map(str::parse).transpose();
    let installed = installed.map_err(VersionSelectionError::Ineligible)?;
    select_way_after(bundle, resource, installed.as_ref(), keeps)
}

/// The same, where `installed` is installed.
pub fn select_way_after(
    bundle: &Bundle,
    resource: &Knative,
    installed: Option<&Version>,
    keeps: bool,
) -> Result<Way, VersionSelectionError> {
    let (component, common) = (resource.component(), resource.common());
    let asked = common.version.as_deref();
    if let Some(installed) = installed.filter(|installed| keeps && installed.satisfies(asked))
        && common.manifests.is_empty()
    {
        return Ok(Way::to(installed.clone()));
    }
    let available = bundle.versions(component);
    // Own manifests need no bundle.
    let available = if common.manifests.is_empty() { available? } else { available.unwrap_or_default() };
    let version = if common.manifests.is_empty() {
        Version::resolve_after(asked, installed, &available)
    } else {
        Version::verbatim(asked, installed, &available)
    };
    let version = version.map_err(|error| match error {
        VersionError::Unavailable { .. } => VersionSelectionError::Unavailable(error),
        other => VersionSelectionError::Ineligible(other),
    })?;
    Way::find(resource, installed, version, &available).map_err(VersionSelectionError::Ineligible)
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::KnativeServing;

    use super::*;

    #[test]
    fn kept_version_stays_while_the_spec_means_it() {
        let root = tempfile::tempdir().unwrap();
        for version in ["1.22.1", "1.22.5", "1.23.0"] {
            std::fs::create_dir_all(root.path().join("knative-serving").join(version)).unwrap();
        }
        let bundle = Bundle::open(root.path().to_owned());
        let installed: Version = "1.22.0".parse().unwrap();
        let select = |asked: Option<&str>, keeps: bool| {
            let mut serving = KnativeServing::default();
            serving.spec.common.version = asked.map(str::to_owned);
            let way = select_way_after(&bundle, &Knative::Serving(serving), Some(&installed), keeps);
            way.map(|way| way.next.to_string()).map_err(|error| error.to_string())
        };
        for asked in [None, Some("latest"), Some("1.22")] {
            assert_eq!(select(asked, true).as_deref(), Ok("1.22.0"), "{asked:?}");
            assert_ne!(select(asked, false).as_deref(), Ok("1.22.0"), "{asked:?}");
        }
        assert_eq!(select(Some("1.23"), true).as_deref(), Ok("1.23.0"));
        assert_eq!(select(Some("1.22.5"), true).as_deref(), Ok("1.22.5"));
    }
}
