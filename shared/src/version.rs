//! Knative versions: which one a spec asks for, and whether it may follow the one that is installed.

use std::fmt;
use std::str::FromStr;

/// A Knative version, such as `1.22.1`. Parses with or without a leading `v`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Version(semver::Version);

/// Why a version can't be used. Each message is a whole clause for a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// Not a version at all.
    #[error("target version v{0} is not in a valid semantic versioning format; set spec.version to one such as 1.22.1, 1.22 or latest")]
    Syntax(String),
    /// The bundle doesn't have it.
    #[error("the manifests of the target version {wanted} are not available to this release; available are {}", list(.available))]
    Unavailable {
        /// What was asked for.
        wanted: String,
        /// What there is, oldest first.
        available: Vec<Version>,
    },
    /// Another major version.
    #[error("not supported to upgrade or downgrade across the MAJOR version. The installed {kind} version is v{installed}")]
    Major {
        /// Kind of the custom resource.
        kind: &'static str,
        /// What is installed.
        installed: Version,
    },
    /// More than one minor version away.
    #[error("not supported to upgrade or downgrade across multiple MINOR versions. The installed {kind} version is v{installed}; go to {} first", .installed.toward(.target))]
    Minor {
        /// Kind of the custom resource.
        kind: &'static str,
        /// What is installed.
        installed: Version,
        /// What was asked for.
        target: Version,
    },
}

fn list(versions: &[Version]) -> String {
    if versions.is_empty() {
        return "none".to_owned();
    }
    versions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let bare = text.strip_prefix('v').unwrap_or(text);
        semver::Version::parse(bare).map(Self).map_err(|_| VersionError::Syntax(bare.to_owned()))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Version {
    /// `major.minor`: the directory of ingresses and sources in a bundle.
    pub fn minor(&self) -> String {
        format!("{}.{}", self.0.major, self.0.minor)
    }

    /// The neighbouring minor on the way to `target`.
    fn toward(&self, target: &Self) -> String {
        let next = if target.0.minor > self.0.minor { self.0.minor + 1 } else { self.0.minor.saturating_sub(1) };
        format!("{}.{next}", self.0.major)
    }

    /// Whether `asked` (`spec.version`) can mean a version: exact, `major.minor`, `latest` or nothing.
    pub fn is_well_formed(asked: &str) -> bool {
        asked.is_empty() || asked.eq_ignore_ascii_case("latest") || major_minor(asked).is_some() || asked.parse::<Self>().is_ok()
    }

    /// The version that `asked` (`spec.version`) means among `available`: exact, `major.minor` (its newest patch),
    /// `latest` or nothing (the newest).
    pub fn resolve(asked: Option<&str>, available: &[Self]) -> Result<Self, VersionError> {
        let asked = asked.unwrap_or_default();
        let unavailable = || {
            let mut available = available.to_vec();
            available.sort();
            VersionError::Unavailable { wanted: asked.to_owned(), available }
        };
        if asked.is_empty() || asked.eq_ignore_ascii_case("latest") {
            return available.iter().max().cloned().ok_or_else(unavailable);
        }
        if let Some((major, minor)) = major_minor(asked) {
            let newest = available.iter().filter(|v| v.0.major == major && v.0.minor == minor).max();
            return newest.cloned().ok_or_else(unavailable);
        }
        let exact: Self = asked.parse()?;
        available.contains(&exact).then_some(exact).ok_or_else(unavailable)
    }

    /// Whether `self` may follow `installed`: the same minor version or a neighbouring one, up or down.
    pub fn may_follow(&self, installed: Option<&Self>, kind: &'static str) -> Result<(), VersionError> {
        let Some(installed) = installed else { return Ok(()) };
        if installed.0.major != self.0.major {
            return Err(VersionError::Major { kind, installed: installed.clone() });
        }
        if installed.0.minor.abs_diff(self.0.minor) > 1 {
            return Err(VersionError::Minor { kind, installed: installed.clone(), target: self.clone() });
        }
        Ok(())
    }
}

fn major_minor(text: &str) -> Option<(u64, u64)> {
    let (major, minor) = text.strip_prefix('v').unwrap_or(text).split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn versions(texts: &[&str]) -> Vec<Version> {
        texts.iter().map(|t| t.parse().unwrap()).collect()
    }

    #[test]
    fn a_spec_means_one_version_of_the_bundle() {
        let bundle = versions(&["1.22.0", "1.9.3", "1.22.1", "1.23.0", "1.21.10", "1.21.9"]);
        for (asked, expected) in [
            (None, "1.23.0"),
            (Some(""), "1.23.0"),
            (Some("latest"), "1.23.0"),
            (Some("Latest"), "1.23.0"),
            (Some("1.22"), "1.22.1"),
            (Some("v1.21"), "1.21.10"),
            (Some("1.22.0"), "1.22.0"),
            (Some("v1.22.0"), "1.22.0"),
        ] {
            assert_eq!(Version::resolve(asked, &bundle).unwrap().to_string(), expected, "{asked:?}");
        }
    }

    #[test]
    fn what_the_bundle_lacks_is_told_with_what_it_has() {
        let bundle = versions(&["1.22.1", "1.22.0"]);
        let error = Version::resolve(Some("1.99"), &bundle).unwrap_err().to_string();
        assert_eq!(error, "the manifests of the target version 1.99 are not available to this release; available are 1.22.0, 1.22.1");
        assert!(Version::resolve(None, &[]).unwrap_err().to_string().ends_with("available are none"));
        assert!(Version::resolve(Some("abc"), &bundle).unwrap_err().to_string().starts_with("target version vabc is not in a valid"));
    }

    #[test]
    fn only_neighbouring_minors_follow_each_other() {
        let v = |t: &str| t.parse::<Version>().unwrap();
        assert!(v("1.22.1").may_follow(None, "KnativeServing").is_ok());
        for (installed, target, fine) in [
            ("1.22.1", "1.22.0", true),
            ("1.22.1", "1.23.0", true),
            ("1.22.1", "1.21.4", true),
            ("1.20.0", "1.22.1", false),
            ("1.23.0", "1.21.0", false),
            ("0.26.0", "1.0.0", false),
        ] {
            assert_eq!(v(target).may_follow(Some(&v(installed)), "KnativeServing").is_ok(), fine, "{installed} to {target}");
        }
        let error = v("1.22.1").may_follow(Some(&v("1.20.0")), "KnativeServing").unwrap_err().to_string();
        assert!(error.ends_with("The installed KnativeServing version is v1.20.0; go to 1.21 first"), "{error}");
    }
}
