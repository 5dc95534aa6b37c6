//! Steps between minor versions: a component is upgraded and downgraded one minor version at a
//! time.

use knative_operator_shared::version::{Version, VersionError};

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
pub fn steps(installed: &Version, asked: &str, available: &[Version]) -> Result<Vec<String>, String> {
    let target = Version::resolve_after(Some(asked), Some(installed), available).map_err(|_| asked.to_owned())?;
    let (mut steps, mut at) = (Vec::new(), installed);
    loop {
        match target.may_follow(Some(at), "") {
            Ok(()) => {
                steps.push(target.to_string());
                return Ok(steps);
            }
            Err(VersionError::Minor { .. }) => {
                let minor = at.toward(&target);
                at = newest(&minor, available).ok_or(minor)?;
                steps.push(at.to_string());
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
    use super::*;

    #[test]
    fn each_minor_version_is_a_step() {
        let version = |text: &str| text.parse::<Version>().unwrap();
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
        let version = |text: &str| text.parse::<Version>().unwrap();
        let available = ["1.20.3", "1.21.0", "1.21.3", "1.22.1", "1.24.0"].map(version);
        let steps = |installed: &str, asked: &str| steps(&version(installed), asked, &available);
        let way = |versions: &[&str]| Ok(versions.iter().map(|version| (*version).to_owned()).collect());
        assert_eq!(steps("1.20.1", "1.22"), way(&["1.21.3", "1.22.1"]));
        assert_eq!(steps("1.22.1", "1.20"), way(&["1.21.3", "1.20.3"]));
        assert_eq!(steps("1.21.3", "1.22.1"), way(&["1.22.1"]));
        assert_eq!(steps("1.21.3", "1.21.3"), way(&["1.21.3"]));
        assert_eq!(steps("1.22.1", "1.24"), Err("1.23".to_owned()));
        assert_eq!(steps("1.22.1", "1.25.0"), Err("1.25.0".to_owned()));
        assert_eq!(steps("2.0.0", "1.22.1"), way(&[]));
    }
}
