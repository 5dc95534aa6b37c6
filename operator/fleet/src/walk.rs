//! Steps between minor versions: a component is upgraded and downgraded one minor version at a
//! time.

use knative_operator_shared::version::Version;

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
    let next = installed.toward(&target);
    let newest = available.iter().filter(|version| version.minor() == next).max();
    // Without that minor version, the operator reports that the target may not follow.
    newest.map_or_else(asked_as_given, |version| Some(version.to_string()))
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
}
