//! Selects the version of a resource to install.

use knative_operator_shared::api::Knative;
use knative_operator_shared::version::{Version, VersionError};
use knative_operator_shared::way::Way;

use super::context::Context;
use super::outcome::Requeue;
use super::recorded;
use knative_operator_release::VersionSelectionError;

/// What to install.
pub enum VersionChoice {
    /// The next version of this way.
    Version(Way),
    /// Nothing: the requested version is not available.
    Unavailable(String, Requeue),
}

/// Selects the version; the error tells why the installed one stays: the requested one may not
/// follow it, or is not available.
pub async fn select_version(cx: &Context, resource: &Knative) -> Result<VersionChoice, VersionError> {
    let why = match knative_operator_release::select_way(
        &cx.library.bundle,
        resource,
        recorded::keeps_installed(cx, resource),
    ) {
        Ok(way) => return Ok(VersionChoice::Version(way)),
        Err(VersionSelectionError::Ineligible(why)) => return Err(why),
        Err(VersionSelectionError::Bundle(why)) => {
            return Ok(VersionChoice::Unavailable(why.to_string(), Requeue::Retry));
        }
        Err(VersionSelectionError::Unavailable(why)) => why,
    };
    if let Some(begun) = begun(resource) {
        match cx.library.has_archived(resource.component(), &begun).await {
            Ok(true) => return Ok(VersionChoice::Version(Way::to(begun))),
            Ok(false) => {}
            Err(why) => return Ok(VersionChoice::Unavailable(why.to_string(), Requeue::Retry)),
        }
    }
    if resource.has_installed() {
        Err(why)
    } else {
        Ok(VersionChoice::Unavailable(why.to_string(), Requeue::AwaitChange))
    }
}

/// The full version that `resource` asks for, if another operator, whose bundle had it, may have
/// begun to install it: this one may be rolled back.
fn begun(resource: &Knative) -> Option<Version> {
    let component = resource.component();
    let asked = resource.common().version.as_deref().filter(|asked| !Version::is_floating(Some(asked)))?;
    let has_finalizer = resource.meta().finalizers.iter().flatten().any(|name| name == component.finalizer());
    let asked: Version = asked.parse().ok().filter(|_| has_finalizer && resource.common().manifests.is_empty())?;
    asked.may_follow(resource.installed_version().as_ref(), component.kind()).is_ok().then_some(asked)
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::{KnativeServing, KnativeStatus};

    use super::*;

    #[test]
    fn only_an_installation_that_may_have_begun_goes_on_from_the_archive() {
        let begun = |asked: &str, installed: Option<&str>, has_finalizer: bool| {
            let mut serving = KnativeServing::default();
            serving.spec.common.version = Some(asked.to_owned());
            serving.status = Some(KnativeStatus { version: installed.map(str::to_owned), ..KnativeStatus::default() });
            let component = Knative::Serving(serving.clone()).component();
            serving.metadata.finalizers = has_finalizer.then(|| vec![component.finalizer().to_owned()]);
            super::begun(&Knative::Serving(serving)).map(|version| version.to_string())
        };
        assert_eq!(begun("1.23.0", Some("1.22.1"), true).as_deref(), Some("1.23.0"));
        assert_eq!(begun("v1.23.0", None, true).as_deref(), Some("1.23.0"));
        for (asked, installed, has_finalizer) in [
            ("1.23.0", Some("1.22.1"), false),
            ("1.24.0", Some("1.22.1"), true),
            ("1.23", Some("1.22.1"), true),
            ("latest", Some("1.22.1"), true),
            ("x", None, true),
        ] {
            assert_eq!(begun(asked, installed, has_finalizer), None, "{asked}");
        }
    }
}
