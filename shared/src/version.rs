//! Knative versions: which one a spec means, and whether it may follow the installed one.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::label::{EACH, MINOR_VERSIONS};

/// Maximum number of available versions that an error lists in full.
const MAX_LISTED: usize = 6;
/// Maximum number of minor versions that a way between two versions lists.
const MAX_STEPS: usize = 100;

/// A Knative version such as `1.22.1`, or `1.22` for own manifests with that version. Parses with
/// or without a leading `v`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub struct Version {
    number: semver::Version,
    /// Whether it was given without a patch number.
    short: bool,
}

/// The minor versions between two, for people.
fn on_the_way(installed: &Version, target: &Version) -> String {
    let mut minors = installed.steps(target);
    minors.pop();
    let mut minors = minors.into_iter();
    let first = minors.next().unwrap_or_default();
    minors.fold(format!("{first} first"), |text, minor| format!("{text}, then to {minor}"))
}

/// Why a version can't be used, as a clause for a condition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum VersionError {
    /// It is not a version.
    #[error(
        "target version v{0} is not in a valid semantic versioning format; set spec.version to one such as 1.22.1, 1.22 or latest"
    )]
    Syntax(String),
    /// The bundle lacks it.
    #[error("the manifests of the target version {wanted} are not available to this release; available versions: {}; set spec.version to one of them", list(.available))]
    Unavailable {
        /// The requested version.
        wanted: String,
        /// The available versions, oldest first.
        available: Vec<Version>,
    },
    /// It has another major version.
    #[error(
        "not supported to upgrade or downgrade across the MAJOR version. The installed {kind} version is v{installed}; set spec.version to one with the same first number"
    )]
    Major {
        /// Kind of the custom resource.
        kind: &'static str,
        /// The installed version.
        installed: Version,
    },
    /// It is more than one minor version away.
    #[error(
        "not supported to upgrade or downgrade across multiple MINOR versions. The installed {kind} version is v{installed}; set spec.version to {}, then to {target}, or set the annotation {} to {}, with which the operator installs each minor version on the way",
        on_the_way(.installed, .target), MINOR_VERSIONS, EACH
    )]
    Minor {
        /// Kind of the custom resource.
        kind: &'static str,
        /// The installed version.
        installed: Version,
        /// The requested version.
        target: Version,
    },
    /// It is more than one minor version away, and has own manifests.
    #[error(
        "not supported to upgrade or downgrade across multiple MINOR versions. The installed {kind} version is v{installed}, and with spec.manifests the operator has no versions on the way; set spec.version to {}, then to {target}, each with its manifests",
        on_the_way(.installed, .target)
    )]
    OwnManifests {
        /// Kind of the custom resource.
        kind: &'static str,
        /// The installed version.
        installed: Version,
        /// The requested version.
        target: Version,
    },
    /// The bundle lacks a version on the way to it.
    #[error(
        "the release bundle lacks version {lacking}, which is on the way from the installed version v{installed} to {target}; install an operator whose release bundle has it, and set spec.version to {installed} until then"
    )]
    Lacking {
        /// The lacking minor version.
        lacking: String,
        /// The installed version.
        installed: Version,
        /// The requested version.
        target: String,
    },
}

/// `versions` for people, oldest first; of many, the newest of each minor version.
fn list(versions: &[Version]) -> String {
    if versions.is_empty() {
        return "none".to_owned();
    }
    if versions.len() > MAX_LISTED {
        let is_newest = |pair: &[Version]| (!pair[0].same_minor(&pair[1])).then(|| pair[0].to_string());
        let newest = versions.windows(2).filter_map(is_newest).chain(versions.last().map(ToString::to_string));
        return format!("{}, and earlier patch releases", newest.collect::<Vec<_>>().join(", "));
    }
    versions.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

impl FromStr for Version {
    type Err = VersionError;

    fn from_str(text: &str) -> Result<Self, VersionError> {
        let bare = text.strip_prefix('v').unwrap_or(text);
        if let Some((major, minor)) = major_minor(bare) {
            return Ok(Self { number: semver::Version::new(major, minor, 0), short: true });
        }
        let number = semver::Version::parse(bare).map_err(|_| VersionError::Syntax(bare.to_owned()))?;
        Ok(Self { number, short: false })
    }
}

impl TryFrom<String> for Version {
    type Error = VersionError;

    fn try_from(text: String) -> Result<Self, VersionError> {
        text.parse()
    }
}

impl From<Version> for String {
    fn from(version: Version) -> Self {
        version.to_string()
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.short { f.write_str(&self.minor()) } else { self.number.fmt(f) }
    }
}

impl Version {
    /// `major.minor`: the directory of ingresses and sources in a bundle.
    pub fn minor(&self) -> String {
        format!("{}.{}", self.number.major, self.number.minor)
    }

    /// Whether it has no patch number, and is the minor version of `other`.
    pub fn is_of(&self, other: &Self) -> bool {
        self.short && self.same_minor(other)
    }

    /// Whether `self` and `other` have the same major and minor number.
    pub fn same_minor(&self, other: &Self) -> bool {
        (self.number.major, self.number.minor) == (other.number.major, other.number.minor)
    }

    /// Whether it is `major.minor` or newer.
    pub fn at_least(&self, major: u64, minor: u64) -> bool {
        (self.number.major, self.number.minor) >= (major, minor)
    }

    /// The next minor version on the way to `target`.
    pub fn toward(&self, target: &Self) -> String {
        let minor = self.number.minor;
        let next = if target.number.minor > minor { minor + 1 } else { minor.saturating_sub(1) };
        format!("{}.{next}", self.number.major)
    }

    /// The minor versions on the way to `target`, in order, up to its own; of a way that no release
    /// has, the first ones.
    pub fn steps(&self, target: &Self) -> Vec<String> {
        let (from, to) = (self.number.minor, target.number.minor);
        let up = (from < to).then(|| from + 1..=to).into_iter().flatten();
        let down = (to..from).rev();
        let minors = up.chain(down).take(MAX_STEPS);
        minors.map(|minor| format!("{}.{minor}", self.number.major)).collect()
    }

    /// Whether `asked` (`spec.version`) can be a version: exact, `major.minor`, `latest` or empty.
    pub fn is_well_formed(asked: &str) -> bool {
        !Self::is_explicit(asked) || asked.parse::<Self>().is_ok()
    }

    /// The version among `available` that `asked` (`spec.version`) means: exact, `major.minor` (its
    /// newest patch), `latest` or empty (the newest).
    pub fn resolve(asked: Option<&str>, available: &[Self]) -> Result<Self, VersionError> {
        let asked = asked.unwrap_or_default();
        let unavailable = || {
            let mut available = available.to_vec();
            available.sort();
            let wanted = if asked.is_empty() { "latest" } else { asked }.to_owned();
            VersionError::Unavailable { wanted, available }
        };
        if !Self::is_explicit(asked) {
            return available.iter().max().cloned().ok_or_else(unavailable);
        }
        if let Some((major, minor)) = major_minor(asked) {
            let newest = available.iter().filter(|v| (v.number.major, v.number.minor) == (major, minor)).max();
            return newest.cloned().ok_or_else(unavailable);
        }
        let exact: Self = asked.parse()?;
        available.contains(&exact).then_some(exact).ok_or_else(unavailable)
    }

    /// The version to install for `asked` where `installed` is installed: a newer one that `asked`
    /// means, or else the installed one while `asked` means it, too, also if `available` lacks it.
    /// So an older set of versions takes nothing back.
    pub fn resolve_after(
        asked: Option<&str>,
        installed: Option<&Self>,
        available: &[Self],
    ) -> Result<Self, VersionError> {
        let kept = installed.filter(|installed| installed.satisfies(asked));
        match (Self::resolve(asked, available), kept) {
            (Ok(version), Some(kept)) if version < *kept => Ok(kept.clone()),
            (Err(VersionError::Unavailable { .. }), Some(kept)) => Ok(kept.clone()),
            (resolved, _) => resolved,
        }
    }

    /// Whether it is one that `asked` (`spec.version`) means.
    pub fn satisfies(&self, asked: Option<&str>) -> bool {
        let asked = asked.unwrap_or_default();
        if !Self::is_explicit(asked) {
            return true;
        }
        match major_minor(asked) {
            Some(minor) => (self.number.major, self.number.minor) == minor,
            None => asked.parse::<Self>().is_ok_and(|exact| exact == *self),
        }
    }

    /// Whether `asked` (`spec.version`) means several versions: those of a minor version, or all.
    pub fn is_floating(asked: Option<&str>) -> bool {
        let asked = asked.unwrap_or_default();
        !Self::is_explicit(asked) || major_minor(asked).is_some()
    }

    /// Whether `asked` (`spec.version`) names a version, and not the newest one.
    pub fn is_explicit(asked: &str) -> bool {
        !asked.is_empty() && !asked.eq_ignore_ascii_case("latest")
    }

    /// The version that `asked` (`spec.version`) means with own manifests: as given, but `latest`
    /// means the newest of `available`.
    pub fn verbatim(asked: Option<&str>, installed: Option<&Self>, available: &[Self]) -> Result<Self, VersionError> {
        let asked = asked.unwrap_or_default();
        if asked.eq_ignore_ascii_case("latest") {
            return Self::resolve_after(Some(asked), installed, available);
        }
        asked.parse()
    }

    /// Whether `self` may follow `installed`: the same minor version or a neighboring one, up or
    /// down.
    pub fn may_follow(&self, installed: Option<&Self>, kind: &'static str) -> Result<(), VersionError> {
        let Some(installed) = installed else { return Ok(()) };
        if installed.number.major != self.number.major {
            return Err(VersionError::Major { kind, installed: installed.clone() });
        }
        if installed.number.minor.abs_diff(self.number.minor) > 1 {
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
    fn spec_version_resolves_to_bundle_version() {
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
    fn installed_version_is_never_taken_back_unasked() {
        let bundle = versions(&["1.21.0", "1.22.0", "1.22.1", "1.23.0"]);
        for (asked, installed, expected) in [
            (None, "1.22.1", "1.23.0"),
            (None, "1.24.0", "1.24.0"),
            (Some("latest"), "1.23.4", "1.23.4"),
            (Some("1.22"), "1.22.0", "1.22.1"),
            (Some("1.22"), "1.22.4", "1.22.4"),
            (Some("1.24"), "1.24.2", "1.24.2"),
            (Some("1.24.2"), "1.24.2", "1.24.2"),
            // On request.
            (Some("1.22.0"), "1.22.4", "1.22.0"),
            (Some("1.22"), "1.23.0", "1.22.1"),
            (Some("1.21"), "1.24.0", "1.21.0"),
        ] {
            let installed = installed.parse().unwrap();
            let version = Version::resolve_after(asked, Some(&installed), &bundle).unwrap();
            assert_eq!(version.to_string(), expected, "{asked:?} after {installed}");
        }
        let installed = "1.24.2".parse().unwrap();
        for asked in ["1.24.1", "1.25", "x"] {
            assert!(Version::resolve_after(Some(asked), Some(&installed), &bundle).is_err(), "{asked}");
        }
        assert_eq!(Version::resolve_after(None, None, &bundle).unwrap().to_string(), "1.23.0");
        assert!(Version::resolve_after(None, None, &[]).is_err());
    }

    #[test]
    fn own_manifests_keep_given_version() {
        let bundle = versions(&["1.22.0", "1.22.1"]);
        for (asked, expected) in [("1.22", "1.22"), ("v1.30.7", "1.30.7"), ("latest", "1.22.1")] {
            assert_eq!(Version::verbatim(Some(asked), None, &bundle).unwrap().to_string(), expected);
        }
        assert!(
            Version::verbatim(None, None, &bundle)
                .unwrap_err()
                .to_string()
                .starts_with("target version v is not in a valid")
        );
        assert!(versions(&["1.22"])[0].same_minor(&bundle[1]));
    }

    #[test]
    fn unavailable_version_lists_available_ones() {
        let bundle = versions(&["1.22.1", "1.22.0"]);
        let error = Version::resolve(Some("1.99"), &bundle).unwrap_err().to_string();
        assert_eq!(
            error,
            "the manifests of the target version 1.99 are not available to this release; available versions: 1.22.0, 1.22.1; set spec.version to one of them"
        );
        assert!(Version::resolve(None, &[]).unwrap_err().to_string().contains("available versions: none"));
        let many = versions(&["1.20.0", "1.20.1", "1.21.0", "1.22.0", "1.22.1", "1.22.2", "1.23.0"]);
        let error = Version::resolve(Some("1.99"), &many).unwrap_err().to_string();
        let expected = "available versions: 1.20.1, 1.21.0, 1.22.2, 1.23.0, and earlier patch releases; set";
        assert!(error.contains(expected), "{error}");
        assert!(
            Version::resolve(Some("abc"), &bundle)
                .unwrap_err()
                .to_string()
                .starts_with("target version vabc is not in a valid")
        );
    }

    #[test]
    fn only_adjacent_minors_may_follow() {
        let v = |t: &str| t.parse::<Version>().unwrap();
        assert!(v("1.22.1").may_follow(None, "KnativeServing").is_ok());
        for (installed, target, allowed) in [
            ("1.22.1", "1.22.0", true),
            ("1.22.1", "1.23.0", true),
            ("1.22.1", "1.21.4", true),
            ("1.20.0", "1.22.1", false),
            ("1.23.0", "1.21.0", false),
            ("0.26.0", "1.0.0", false),
        ] {
            assert_eq!(
                v(target).may_follow(Some(&v(installed)), "KnativeServing").is_ok(),
                allowed,
                "{installed} to {target}"
            );
        }
        let error = v("1.22.1").may_follow(Some(&v("1.20.0")), "KnativeServing").unwrap_err().to_string();
        assert!(
            error.contains(
                "The installed KnativeServing version is v1.20.0; set spec.version to 1.21 first, then to 1.22.1, or set"
            ),
            "{error}"
        );
    }
}
