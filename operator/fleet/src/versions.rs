//! The versions of a revision. A spec may ask for a version without a patch number, or for none.
//! What that means is decided once, when the rollout begins: with a newer release bundle it is
//! another revision, which passes the same stages, unless failures stopped the fleet.

use std::collections::BTreeMap;

use knative_operator_shared::api::fleet::{StageState, StageStatus};
use knative_operator_shared::api::{Component, KnativeFleetSpec, KnativeFleetStatus};
use knative_operator_shared::fleet::content;
use knative_operator_shared::fleet::stage::Stages;
use knative_operator_shared::version::Version;
use serde::Serialize;

use super::revision::RevisionData;

/// What the versions of a revision depend on.
#[derive(Debug)]
pub struct VersionSources<'a> {
    /// The versions in the release bundle.
    pub available: &'a [(Component, Vec<Version>)],
    /// The revision that is rolled out now. A version never goes back.
    pub before: Option<&'a RevisionData>,
    /// The versions that are installed on the clusters.
    pub installed: &'a [(Component, Version)],
    /// Whether a version stays while the spec means it.
    pub keeps_installed: bool,
}

/// What a version without a patch number means.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Meaning {
    /// The kind of the resources that ask for it.
    pub kind: &'static str,
    /// What they ask for, such as `1.22` or `latest`.
    pub asked: String,
    /// What it means now: the version that is rolled out or installed, if there is one.
    pub before: Option<String>,
    /// What it means in a rollout that begins now, if that is known.
    pub after: Option<String>,
}

/// The version that a resource has, for [`VersionSources`]: what is `installed` by its status, or,
/// if it has none, what it `asked` for.
pub fn known(installed: Option<Version>, is_reported: bool, asked: Option<&str>) -> Option<Version> {
    let asked = asked.filter(|asked| !is_reported && !Version::is_floating(Some(asked)));
    installed.or_else(|| asked?.parse().ok())
}

/// Whether failures stopped the rollout of a fleet with `spec`, by its `status`, and nobody changed
/// since what is rolled out, or where. A newer release bundle starts no other rollout then.
pub fn are_stopped(spec: &KnativeFleetSpec, status: &KnativeFleetStatus) -> bool {
    let mut failed = status.failed_revisions.iter().flatten();
    let has_failed = failed.any(|failed| Some(failed) == status.update_revision.as_ref());
    let Ok(stages) = Stages::of(&spec.rollout) else { return false };
    let count = |count: i32| usize::try_from(count).unwrap_or_default();
    let has_too_many = |stage: &StageStatus| {
        let settings = stages.settings().iter().find(|settings| settings.name == stage.name);
        let limit = settings.map(|settings| settings.failures(count(stage.clusters)));
        stage.state == StageState::Paused && limit.is_some_and(|limit| count(stage.failed) > limit)
    };
    (has_failed || status.stages.iter().any(has_too_many))
        && status.rollout_digest.as_ref() == Some(&content::digest(spec))
}

/// What the versions without a patch number in `data` mean, by component.
pub fn meanings(data: &RevisionData, sources: &VersionSources<'_>) -> Vec<Meaning> {
    let before = resolved(data.clone(), &VersionSources { available: &[], ..*sources });
    let after = resolved(data.clone(), sources);
    let mut meanings = Vec::new();
    for component in Component::ALL {
        meanings.extend(data.floating(component).into_iter().map(|asked| {
            let of = |data: &RevisionData| data.version(component, Some(&asked)).map(str::to_owned);
            let (before, after) = (of(&before), of(&after));
            Meaning { kind: component.kind(), asked, before, after }
        }));
    }
    meanings
}

/// What `asked` of `component` means in `before`, the revision that is rolled out now.
fn rolled_out(before: Option<&RevisionData>, component: Component, asked: &str) -> Option<Version> {
    before.and_then(|before| before.version(component, Some(asked))?.parse().ok())
}

/// Whether what the versions in `data` mean depends on what is installed: the revision `before`,
/// which is rolled out now, has not all of them.
pub fn needs_installed(data: &RevisionData, before: Option<&RevisionData>) -> bool {
    let is_open =
        |component| data.floating(component).iter().any(|asked| rolled_out(before, component, asked).is_none());
    Component::ALL.into_iter().any(is_open)
}

/// `data` with the versions that it means. One that can't be resolved stays as it is: the
/// resources report it.
pub fn resolved(mut data: RevisionData, sources: &VersionSources<'_>) -> RevisionData {
    for component in Component::ALL {
        let available = sources.available.iter().find(|(of, _)| *of == component);
        let available = available.map_or(&[][..], |(_, versions)| versions.as_slice());
        let mut table = BTreeMap::new();
        for asked in data.floating(component) {
            let before = rolled_out(sources.before, component, &asked);
            let newest = || {
                let own = sources
                    .installed
                    .iter()
                    .filter(|(of, version)| *of == component && version.satisfies(Some(&asked)));
                own.map(|(_, version)| version.clone()).max()
            };
            let kept: Option<Version> = before.or_else(newest);
            let version = match &kept {
                Some(kept) if sources.keeps_installed => Some(kept.clone()),
                kept => Version::resolve_after(Some(&asked), kept.as_ref(), available).ok(),
            };
            table.extend(version.map(|version| (asked, version.to_string())));
        }
        if !table.is_empty() {
            data.versions.insert(component.kind().to_owned(), table);
        }
    }
    data
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn version_of_a_resource_that_lost_its_status_is_what_it_asks_for() {
        for (installed, is_reported, asked, expected) in [
            (Some("1.22.1"), true, Some("1.22.2"), Some("1.22.1")),
            (None, true, Some("1.22.2"), None),
            (None, false, Some("1.22.2"), Some("1.22.2")),
            (None, false, Some("1.22"), None),
            (None, false, None, None),
        ] {
            assert_eq!(known(installed.map(version), is_reported, asked), expected.map(version), "{asked:?}");
        }
    }

    #[test]
    fn failures_stop_a_fleet_until_somebody_changes_it() {
        let spec = |patch: serde_json::Value| -> KnativeFleetSpec {
            let mut spec = json!({"placement": {"clusterSelector": {}}, "serving": {"spec": {"version": "1.22"}},
                "rollout": {"stages": [{"name": "all", "maxFailures": 1}]}});
            json_patch::merge(&mut spec, &patch);
            serde_json::from_value(spec).unwrap()
        };
        let own = spec(json!({}));
        let status = |patch: serde_json::Value| -> KnativeFleetStatus {
            let mut status = json!({"updateRevision": "b", "rolloutDigest": content::digest(&own),
                "stages": [{"name": "all", "state": "Paused", "clusters": 3, "failed": 2}]});
            json_patch::merge(&mut status, &patch);
            serde_json::from_value(status).unwrap()
        };
        let stage = |state: &str, failed: i32| json!({"stages": [{"name": "all", "state": state, "clusters": 3, "failed": failed}]});
        let rolled_back = |revision: &str| json!({"failedRevisions": [revision], "stages": null});
        let paused = json!({"rollout": {"paused": true}});
        for (change, patch, expected) in [
            (json!({}), json!({}), true),
            // Its end doesn't end the failures.
            (paused.clone(), json!({}), true),
            // By a person, or within the limit.
            (paused, stage("Paused", 1), false),
            (json!({}), stage("Complete", 1), false),
            (json!({}), rolled_back("b"), true),
            (json!({}), rolled_back("a"), false),
            (json!({"serving": {"spec": {"version": "1.22.5"}}}), json!({}), false),
            (json!({"rollout": {"stages": [{"name": "all", "maxFailures": 2}]}}), json!({}), false),
            (json!({"placement": {"namespaces": ["*"]}}), rolled_back("b"), false),
        ] {
            assert_eq!(are_stopped(&spec(change.clone()), &status(patch.clone())), expected, "{change} {patch}");
        }
    }

    #[test]
    fn new_bundle_is_another_revision_and_nothing_goes_back() {
        let data = |asked: &str| -> RevisionData {
            serde_json::from_value(json!({"serving": {"spec": {"version": asked}}})).unwrap()
        };
        let resolve = |asked: &str, bundle: &[&str], before: Option<&RevisionData>, installed: &[&str], keeps: bool| {
            let available = [(Component::Serving, bundle.iter().map(|v| version(v)).collect())];
            let installed: Vec<_> = installed.iter().map(|v| (Component::Serving, version(v))).collect();
            let sources =
                VersionSources { available: &available, before, installed: &installed, keeps_installed: keeps };
            resolved(data(asked), &sources)
        };
        let serving = |data: &RevisionData| data.version(Component::Serving, Some("1.22")).map(str::to_owned);
        let first = resolve("1.22", &["1.21.0", "1.22.1"], None, &[], false);
        assert_eq!(serving(&first).as_deref(), Some("1.22.1"));
        let (older, newer) = (["1.22.0"], ["1.22.1", "1.22.5", "1.23.0"]);
        assert_eq!(serving(&resolve("1.22", &newer, Some(&first), &[], false)).as_deref(), Some("1.22.5"));
        assert_eq!(resolve("1.22", &newer, Some(&first), &[], true), first, "versions are kept");
        assert_eq!(resolve("1.22", &older, Some(&first), &[], false), first, "a version never goes back");
        // The revision of an earlier version of the operator has no versions.
        assert_eq!(resolve("1.22", &newer, Some(&data("1.22")), &["1.22.1", "1.21.0"], true), first);
        assert_eq!(resolve("1.22", &older, None, &["1.22.1"], false), first);
        // Once it is rolled out, nobody asks what is installed.
        for (asked, before, expected) in [
            ("1.22", None, true),
            ("1.22", Some(&data("1.22")), true),
            ("1.22", Some(&first), false),
            ("latest", Some(&first), true),
            ("1.22.1", None, false),
        ] {
            assert_eq!(needs_installed(&data(asked), before), expected, "{asked}");
            let with = |installed: &[&str]| resolve(asked, &newer, before, installed, true);
            assert!(expected || with(&[]) == with(&["1.22.0", "1.22.4", "1.23.0"]), "{asked}");
        }
        // An exact version, and one that does not exist, stay.
        assert_eq!(resolve("1.22.1", &newer, Some(&first), &[], false), data("1.22.1"));
        assert_eq!(resolve("1.99", &newer, Some(&first), &[], false), data("1.99"));
        let none = resolve("latest", &newer, None, &[], false);
        assert_eq!(none.version(Component::Serving, None), Some("1.23.0"));
    }
}
