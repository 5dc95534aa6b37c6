//! The way from one minor version to another: a component is upgraded and downgraded one minor
//! version at a time. Nothing of it is stored: it follows from the version that is installed and
//! the one that is asked for.

use crate::api::Knative;
use crate::label::{EACH, MINOR_VERSIONS};
use crate::version::{Version, VersionError};

/// A minor version that a release bundle lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the release bundle lacks version {0}")]
pub struct Lacking(pub String);

/// What is installed one after another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// The version to install now.
    pub next: Version,
    /// The versions after it, up to the one that is asked for; none if `next` is that one.
    pub then: Vec<Version>,
}

impl Way {
    /// To `version` at once.
    pub fn to(version: Version) -> Self {
        Self { next: version, then: Vec::new() }
    }

    /// From `installed` to `target`, which `resource` asks for: at once, if it may follow; or, if
    /// the resource asks for that, too, with each minor version on the way. `available` are the
    /// versions in the release bundle.
    ///
    /// # Errors
    ///
    /// Why there is none. Then nothing of it is installed.
    pub fn find(
        resource: &Knative,
        installed: Option<&Version>,
        target: Version,
        available: &[Version],
    ) -> Result<Self, VersionError> {
        let kind = resource.component().kind();
        let Err(error) = target.may_follow(installed, kind) else { return Ok(Self::to(target)) };
        let (VersionError::Minor { .. }, Some(installed)) = (&error, installed) else { return Err(error) };
        if !resource.common().manifests.is_empty() {
            return Err(VersionError::OwnManifests { kind, installed: installed.clone(), target });
        }
        if resource.annotation(MINOR_VERSIONS) != Some(EACH) {
            return Err(error);
        }
        let lacks = |Lacking(lacking)| VersionError::Lacking {
            lacking,
            installed: installed.clone(),
            target: target.to_string(),
        };
        let mut steps = between(installed, &target, available).map_err(lacks)?.into_iter();
        steps.next().map(|next| Self { next, then: steps.collect() }).ok_or(error)
    }

    /// The same after `first`.
    #[must_use]
    pub fn after(self, first: Version) -> Self {
        Self { next: first, then: [vec![self.next], self.then].concat() }
    }

    /// The version that is asked for.
    pub fn target(&self) -> &Version {
        self.then.last().unwrap_or(&self.next)
    }
}

/// The `spec.version` of the next step from `installed` to `asked`, a `spec.version`; `available`
/// are the versions in the release bundle. It is `asked` itself if that may follow.
pub fn next_step(installed: Option<&Version>, asked: Option<&str>, available: &[Version]) -> Option<String> {
    let asked_as_given = || asked.map(str::to_owned);
    let (Some(installed), Ok(target)) = (installed, Version::resolve_after(asked, installed, available)) else {
        return asked_as_given();
    };
    if target.may_follow(Some(installed), "").is_ok() {
        return asked_as_given();
    }
    // Without that minor version, the operator reports that the target may not follow.
    newest(&installed.toward(&target), available).map_or_else(asked_as_given, |version| Some(version.to_string()))
}

/// The versions that are installed one after another on the way from `installed` to `asked`, a
/// `spec.version`, with the last one; none to another major version.
///
/// # Errors
///
/// A version on the way that `available` lacks.
pub fn steps(installed: &Version, asked: &str, available: &[Version]) -> Result<Vec<Version>, Lacking> {
    let target = Version::resolve_after(Some(asked), Some(installed), available);
    between(installed, &target.map_err(|_| Lacking(asked.to_owned()))?, available)
}

/// The same to `target`: the newest patch of each minor version in between, and `target`.
fn between(installed: &Version, target: &Version, available: &[Version]) -> Result<Vec<Version>, Lacking> {
    let (mut steps, mut at) = (Vec::new(), installed);
    loop {
        match target.may_follow(Some(at), "") {
            Ok(()) => {
                steps.push(target.clone());
                return Ok(steps);
            }
            Err(VersionError::Minor { .. }) => {
                let minor = at.toward(target);
                at = newest(&minor, available).ok_or(Lacking(minor))?;
                steps.push(at.clone());
            }
            Err(_) => return Ok(Vec::new()),
        }
    }
}

/// The newest patch of the `minor` version among `available`.
fn newest<'a>(minor: &str, available: &'a [Version]) -> Option<&'a Version> {
    available.iter().filter(|version| version.minor() == minor).max()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::KnativeServing;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    fn serving(annotations: &Value, spec: &Value) -> Knative {
        let object = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
            "metadata": {"name": "a", "namespace": "b", "annotations": annotations}, "spec": spec});
        Knative::Serving(serde_json::from_value::<KnativeServing>(object).unwrap())
    }

    #[test]
    fn each_minor_version_is_a_step() {
        let available = ["1.20.3", "1.21.0", "1.21.3", "1.22.0", "1.22.1", "1.23.0"].map(version);
        for (installed, asked, expected) in [
            (None, Some("1.23"), Some("1.23")),
            (Some("1.22.1"), Some("1.23"), Some("1.23")),
            (Some("1.22.1"), Some("1.22"), Some("1.22")),
            (Some("1.20.3"), Some("1.23"), Some("1.21.3")),
            (Some("1.21.3"), Some("1.23.0"), Some("1.22.1")),
            (Some("1.20.0"), None, Some("1.21.3")),
            (Some("1.22.1"), None, None),
            (Some("1.23.0"), Some("1.20"), Some("1.22.1")),
            (Some("1.22.1"), Some("1.20"), Some("1.21.3")),
            // The operator reports what is wrong with these.
            (Some("1.22.1"), Some("1.9"), Some("1.9")),
            (Some("1.22.1"), Some("x"), Some("x")),
        ] {
            let next = next_step(installed.map(version).as_ref(), asked, &available);
            assert_eq!(next.as_deref(), expected, "{installed:?} to {asked:?}");
        }
    }

    #[test]
    fn way_to_a_version_is_known_before() {
        let available = ["1.20.3", "1.21.0", "1.21.3", "1.22.1", "1.24.0"].map(version);
        let steps = |installed: &str, asked: &str| steps(&version(installed), asked, &available);
        let way = |versions: &[&str]| Ok(versions.iter().copied().map(version).collect());
        assert_eq!(steps("1.20.1", "1.22"), way(&["1.21.3", "1.22.1"]));
        assert_eq!(steps("1.22.1", "1.20"), way(&["1.21.3", "1.20.3"]));
        assert_eq!(steps("1.21.3", "1.22.1"), way(&["1.22.1"]));
        assert_eq!(steps("1.21.3", "1.21.3"), way(&["1.21.3"]));
        assert_eq!(steps("1.22.1", "1.24"), Err(Lacking("1.23".to_owned())));
        assert_eq!(steps("1.22.1", "1.25.0"), Err(Lacking("1.25.0".to_owned())));
        assert_eq!(steps("2.0.0", "1.22.1"), way(&[]));
    }

    #[test]
    fn single_resource_goes_through_minor_versions_only_on_request() {
        let available = ["1.20.3", "1.21.0", "1.21.3", "1.22.1", "1.23.0", "1.25.0"].map(version);
        let (none, each) = (json!({}), json!({"operator.knative.dev/minor-versions": "each"}));
        let of = |annotations: &Value, installed: Option<&str>, target: &str| {
            let installed = installed.map(version);
            let way = Way::find(&serving(annotations, &json!({})), installed.as_ref(), version(target), &available);
            way.map(|way| [vec![way.next.clone()], way.then.clone()].concat()).map_err(|error| error.to_string())
        };
        let way = |versions: &[&str]| Ok(versions.iter().copied().map(version).collect::<Vec<_>>());
        for annotations in [&none, &each] {
            assert_eq!(of(annotations, None, "1.23.0"), way(&["1.23.0"]));
            assert_eq!(of(annotations, Some("1.22.1"), "1.23.0"), way(&["1.23.0"]));
            assert_eq!(of(annotations, Some("1.22.1"), "1.21.0"), way(&["1.21.0"]));
            assert!(of(annotations, Some("2.22.1"), "1.21.0").unwrap_err().contains("across the MAJOR version"));
        }
        assert_eq!(of(&each, Some("1.20.1"), "1.23.0"), way(&["1.21.3", "1.22.1", "1.23.0"]));
        assert_eq!(of(&each, Some("1.21.3"), "1.23.0"), way(&["1.22.1", "1.23.0"]));
        assert_eq!(of(&each, Some("1.23.0"), "1.20.3"), way(&["1.22.1", "1.21.3", "1.20.3"]));
        // What it is not asked for with this value.
        for annotations in [&none, &json!({"operator.knative.dev/minor-versions": "all"})] {
            let refused = of(annotations, Some("1.20.1"), "1.23.0").unwrap_err();
            assert!(
                refused.contains("set spec.version to 1.21 first, then to 1.22, then to 1.23.0, or set the annotation")
                    && refused.contains("operator.knative.dev/minor-versions to each"),
                "{refused}"
            );
        }
        // Nothing of a way with a gap is installed.
        let refused = of(&each, Some("1.22.1"), "1.25.0").unwrap_err();
        assert!(refused.starts_with("the release bundle lacks version 1.24, which is on the way"), "{refused}");
    }

    #[test]
    fn own_manifests_have_no_versions_on_the_way() {
        let each = json!({"operator.knative.dev/minor-versions": "each"});
        let own = serving(&each, &json!({"version": "1.23.0", "manifests": [{"URL": "own.yaml"}]}));
        let available = ["1.21.3", "1.22.1"].map(version);
        let way = |target: &str| Way::find(&own, Some(&version("1.20.3")), version(target), &available);
        assert_eq!(way("1.21.9"), Ok(Way::to(version("1.21.9"))));
        let refused = way("1.23.0").unwrap_err().to_string();
        assert!(refused.contains("with spec.manifests the operator has no versions on the way"), "{refused}");
        assert!(!refused.contains("annotation"), "{refused}");
    }

    #[test]
    fn last_version_is_the_one_that_is_asked_for() {
        let way = Way { next: version("1.21.3"), then: vec![version("1.22.1"), version("1.23.0")] };
        assert_eq!(way.target(), &version("1.23.0"));
        assert_eq!(Way::to(version("1.22.1")).target(), &version("1.22.1"));
    }
}
