//! The version in the record of an installation, and which one may follow it.

use knative_operator_shared::api::Knative;
use knative_operator_shared::label::{ALLOWED_GENERATION, REFUSED_VERSION};
use knative_operator_shared::version::Version;
use serde::{Deserialize, Serialize};

/// The version that an installation has, or is about to have, and which state of its resource asked
/// for it. A hub that is restored from a backup may know an older one.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AppliedVersion {
    /// The version.
    pub version: Version,
    /// `spec.version` of the resource.
    #[serde(default)]
    pub asked: String,
    /// Uid of the resource.
    pub uid: String,
    /// Generation of the resource.
    pub generation: i64,
    /// The version that `asked` means, if `version` is only one on the way to it.
    #[serde(skip)]
    pub beyond: Option<Version>,
    /// Whether a version stays while `asked` means it.
    #[serde(skip)]
    pub keeps: bool,
    /// The newest generation of the resource that a record allowed, as far as its status tells.
    #[serde(skip)]
    pub allowed: i64,
    /// Whether the version that it asks for was refused before, so that another change of the
    /// resource doesn't ask for it.
    #[serde(skip)]
    pub was_refused: bool,
}

impl AppliedVersion {
    /// `version`, which `resource` asks for, or which is on the way to the version `beyond` that it
    /// asks for. `keeps`: whether a version stays while it asks for it.
    pub fn of(resource: &Knative, version: &Version, beyond: Option<&Version>, keeps: bool) -> Self {
        let meta = resource.meta();
        let (uid, generation) = (meta.uid.clone().unwrap_or_default(), meta.generation.unwrap_or_default());
        let asked = resource.common().version.clone().unwrap_or_default();
        let annotation = |name| resource.status().and_then(|status| status.annotations.get(name));
        let refused = annotation(REFUSED_VERSION);
        let was_refused = refused.is_some_and(|refused| *refused == asked);
        let allowed = annotation(ALLOWED_GENERATION).and_then(|allowed| allowed.parse().ok());
        // An earlier version of the operator wrote the status.
        let allowed = allowed.or_else(|| resource.status()?.observed_generation).unwrap_or_default();
        let (version, beyond) = (version.clone(), beyond.cloned());
        Self { version, asked, uid, generation, beyond, keeps, allowed, was_refused }
    }

    /// Whether `asked` means the version, or one below it, on the way down from `before`.
    fn leads_to_asked(&self, before: &Version) -> bool {
        match &self.beyond {
            None => self.version.satisfies(Some(&self.asked)),
            Some(target) => *target < self.version && self.version < *before,
        }
    }

    /// Why `wanted`, for the same installation, may not follow; `None` if it may. A newer version
    /// follows as in any upgrade, an older one only if the resource was changed to ask for it.
    /// `is_accepted`: whether the status of the resource has a version, with which `wanted` was
    /// compared.
    pub fn objection(&self, wanted: &Self, is_accepted: bool, kind: &'static str) -> Option<String> {
        // The status, which would have kept it, is lost.
        if wanted.keeps && !is_accepted && self.version != wanted.version && self.version.satisfies(Some(&wanted.asked))
        {
            let installed = &self.version;
            return Some(format!("the cluster has version {installed}, which stays while spec.version means it"));
        }
        let is_changed = wanted.uid == self.uid && wanted.generation > self.generation;
        // Without the last condition, the hub is older than the record.
        let may_ask = wanted.uid == self.uid
            && !wanted.was_refused
            && Version::is_explicit(&wanted.asked)
            && wanted.leads_to_asked(&self.version)
            && wanted.allowed >= self.generation;
        // It may be applied as a whole, although the status has another version.
        let is_neighbor = || wanted.version.may_follow(Some(&self.version), kind).is_ok();
        let is_asked = may_ask && is_changed && wanted.asked != self.asked && (!is_accepted || is_neighbor());
        // The record has a version on the way to the one that the same spec asks for.
        let is_continued = may_ask
            && wanted.generation >= self.generation
            && wanted.asked == self.asked
            && !self.version.satisfies(Some(&self.asked))
            && is_neighbor();
        if is_asked || is_continued {
            return None;
        }
        let is_step = wanted.beyond.is_some();
        let (installed, wanted) = (&self.version, &wanted.version);
        if is_step && wanted.may_follow(Some(installed), kind).is_err() {
            return Some(format!(
                "the cluster has version {installed}, which is not next to the {wanted} on the way from the version in the status, as after \
                 a restore from a backup. Nothing is changed there; set spec.version to {installed}, and remove the version from the \
                 status, as docs/operate/lifecycle.md says"
            ));
        }
        // Own manifests may name the minor version only.
        if wanted < installed && !wanted.is_of(installed) {
            return Some(format!(
                "the cluster has version {installed}, which is newer than the {wanted} of this resource, as after a restore from a backup. \
                 Nothing is changed there; set spec.version to {installed}. To install {wanted} on purpose, set spec.version to it afterwards"
            ));
        }
        wanted.may_follow(Some(installed), kind).err().map(|why| why.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn older_version_needs_a_resource_that_was_changed_to_ask_for_it() {
        let applied = |version: &str, asked: &str, uid: &str, generation| AppliedVersion {
            version: version.parse().unwrap(),
            asked: asked.to_owned(),
            uid: uid.to_owned(),
            generation,
            beyond: None,
            keeps: false,
            allowed: 4,
            was_refused: false,
        };
        let refused = |applied: AppliedVersion| AppliedVersion { was_refused: true, ..applied };
        let before = applied("1.23.0", "latest", "1", 4);
        let restored = |applied: AppliedVersion| AppliedVersion { allowed: 3, ..applied };
        let keeping = |applied: AppliedVersion| AppliedVersion { keeps: true, ..applied };
        let kept = Some("which stays while spec.version means it");
        let newer = Some("which is newer than the 1.22.1 of this resource");
        let minors = Some("across multiple MINOR versions");
        for (wanted, is_accepted, expected) in [
            (applied("1.23.0", "latest", "1", 4), true, None),
            (applied("1.23.1", "latest", "1", 4), true, None),
            (applied("1.24.0", "1.24", "2", 1), true, None),
            (applied("1.22.1", "1.22", "1", 5), true, None),
            (applied("1.23", "latest", "1", 4), true, None),
            // Restored from a backup: to an older time, or without the uid.
            (applied("1.22.1", "1.22", "1", 4), true, newer),
            (applied("1.22.1", "1.22", "1", 2), true, newer),
            (applied("1.22.1", "1.22", "2", 9), true, newer),
            (applied("1.23.0", "latest", "2", 1), false, None),
            // Changed afterwards, but not to ask for the older version.
            (applied("1.22.1", "latest", "1", 5), true, newer),
            (applied("1.22.1", "", "1", 9), false, newer),
            (applied("1.22.1", "1.24", "1", 5), true, newer),
            // Restored to an older time, and then changed in other fields.
            (refused(applied("1.22.1", "1.22", "1", 6)), true, newer),
            (applied("1.22.1", "1.22.1", "1", 7), true, None),
            // The same, before the operator could refuse it.
            (restored(applied("1.22.1", "1.22", "1", 6)), true, newer),
            (restored(applied("1.24.0", "1.24", "1", 6)), true, None),
            (applied("1.25.0", "1.25", "2", 5), false, minors),
            (applied("1.25.0", "latest", "1", 5), false, minors),
            // Versions are kept, and the status is lost.
            (keeping(applied("1.23.1", "1.23", "2", 1)), false, kept),
            (keeping(applied("1.24.0", "latest", "1", 5)), false, kept),
            (keeping(applied("1.23.0", "latest", "2", 1)), false, None),
            (keeping(applied("1.24.0", "1.24", "2", 1)), false, None),
            (keeping(applied("1.23.1", "1.23", "1", 4)), true, None),
            // It was tried only, since the status has no version; or it may be applied as a whole.
            (applied("1.21.0", "1.21", "1", 5), false, None),
            (applied("1.21.0", "1.21", "1", 5), true, Some("which is newer than the 1.21.0 of this resource")),
            (restored(applied("1.25.0", "1.25", "1", 6)), true, minors),
        ] {
            let objection = before.objection(&wanted, is_accepted, "KnativeServing");
            let is_expected = match expected {
                None => objection.is_none(),
                Some(part) => objection.as_ref().is_some_and(|text| text.contains(part)),
            };
            assert!(is_expected, "{wanted:?}: {objection:?}");
        }
    }

    #[test]
    fn way_down_is_gone_step_by_step_by_the_spec_that_asks_for_it() {
        let version = |text: &str| text.parse::<Version>().unwrap();
        let applied = |text: &str, asked: &str, generation, beyond: Option<&str>| AppliedVersion {
            version: version(text),
            asked: asked.to_owned(),
            uid: "1".to_owned(),
            generation,
            beyond: beyond.map(version),
            keeps: false,
            allowed: 9,
            was_refused: false,
        };
        let restored = |applied: AppliedVersion| AppliedVersion { allowed: 2, ..applied };
        let refused = |applied: AppliedVersion| AppliedVersion { was_refused: true, ..applied };
        for (before, wanted, is_allowed) in [
            (applied("1.23.0", "1.23", 2, None), applied("1.22.1", "1.20", 3, Some("1.20.3")), true),
            (applied("1.22.1", "1.20", 3, Some("1.20.3")), applied("1.21.3", "1.20", 3, Some("1.20.3")), true),
            (applied("1.21.3", "1.20", 3, Some("1.20.3")), applied("1.20.3", "1.20", 3, None), true),
            // Another field was changed on the way, or the annotation was set afterwards.
            (applied("1.22.1", "1.20", 3, None), applied("1.21.3", "1.20", 4, Some("1.20.3")), true),
            (applied("1.23.0", "1.20", 3, None), applied("1.22.1", "1.20", 3, Some("1.20.3")), true),
            // Up.
            (applied("1.20.3", "1.20", 1, None), applied("1.21.3", "1.23", 2, Some("1.23.0")), true),
            (applied("1.21.3", "1.23", 2, None), applied("1.22.1", "1.23", 2, Some("1.23.0")), true),
            (applied("1.20.3", "", 1, None), applied("1.21.3", "", 1, Some("1.23.0")), true),
            // The hub is older than the record.
            (applied("1.23.0", "1.23", 4, None), applied("1.22.1", "1.20", 3, Some("1.20.3")), false),
            (applied("1.23.0", "1.23", 4, None), restored(applied("1.22.1", "1.20", 5, Some("1.20.3"))), false),
            (applied("1.22.1", "1.20", 3, None), restored(applied("1.21.3", "1.20", 3, Some("1.20.3"))), false),
            (applied("1.23.0", "1.23", 2, None), refused(applied("1.22.1", "1.20", 3, Some("1.20.3"))), false),
            // On the way up, nothing goes down.
            (applied("1.23.0", "1.23", 2, None), applied("1.21.3", "1.23.0", 3, Some("1.23.0")), false),
            (applied("1.22.1", "1.23", 2, None), applied("1.21.3", "1.23", 2, Some("1.23.0")), false),
            // What is there already is not left.
            (applied("1.20.3", "1.20", 3, None), applied("1.20.1", "1.20", 3, None), false),
        ] {
            let objection = before.objection(&wanted, true, "KnativeServing");
            assert_eq!(objection.is_none(), is_allowed, "{before:?} to {wanted:?}: {objection:?}");
        }
        // The status is lost: the spec's version is no neighbor of the record.
        for (before, wanted, is_allowed) in [
            (applied("1.21.3", "1.23", 2, None), applied("1.23.0", "1.23", 2, None), false),
            (applied("1.21.3", "1.23", 2, None), applied("1.21.3", "1.23", 2, Some("1.23.0")), true),
            (applied("1.22.1", "1.20", 3, None), applied("1.20.3", "1.20", 3, None), false),
            (applied("1.20.3", "1.23", 3, None), applied("1.23.0", "1.23", 3, None), false),
        ] {
            let objection = before.objection(&wanted, false, "KnativeServing");
            assert_eq!(objection.is_none(), is_allowed, "{before:?} to {wanted:?}: {objection:?}");
        }
    }
}
