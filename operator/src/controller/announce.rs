//! Events about an installation before it is applied: which version, and which settings have no
//! effect.

use std::time::Instant;

use knative_operator_rules::unused_ingress;
use knative_operator_shared::api::Knative;
use knative_operator_shared::version::Version;

use super::conditions::InstallationReport;
use super::context::Context;
use super::state::ReconcilerState;
use knative_operator_objects::plan::Plan;
use knative_operator_release::Release;

/// Number of settings without effect that have an event each. A spec may have thousands.
const MAX_IGNORED: usize = 50;

/// Publishes an event for each setting without effect, for an ingress that no Service uses, and for
/// a version that the bundle lacks, after a change of generation or version.
pub async fn warn_of_ignored_overrides(
    cx: &Context,
    resource: &Knative,
    state: &mut ReconcilerState,
    (release, version): (&Release, &Version),
) {
    let subject = generation_and_version(resource, version);
    if state.warnings.subject.as_ref() == Some(&subject) {
        return;
    }
    state.warnings.subject = Some(subject);
    let (advice, unused) = (release.advice.clone(), unused_ingress(resource).map(|unused| unused.to_string()));
    let find = || {
        let unmatched = knative_operator_render::names(release.objects()).unmatched(resource);
        ignored_notes(release.warnings.iter().cloned().chain(unmatched.iter().map(ToString::to_string)))
    };
    let ignored = cx.rendered.ignored((resource, version), release, find).await;
    let due = state.warnings.due(advice.iter().chain(&unused).chain(&*ignored).cloned().collect(), Instant::now());
    let is_due = |note: &String| due.contains(note);
    if let Some(advice) = advice.filter(is_due) {
        cx.events.warning(resource, "VersionNotInBundle", advice);
    }
    if let Some(unused) = unused.filter(is_due) {
        cx.events.warning(resource, "IngressUnused", unused);
    }
    for note in ignored.iter().filter(|note| is_due(note)) {
        cx.events.warning(resource, "OverrideIgnored", note.clone());
    }
}

/// The notes of events about settings without effect: the `warnings`, and how many are left out.
fn ignored_notes(warnings: impl Iterator<Item = String>) -> Vec<String> {
    let mut notes: Vec<String> = warnings.collect();
    let left = notes.split_off(notes.len().min(MAX_IGNORED)).len();
    if left > 0 {
        notes.push(format!("{left} more settings have no effect; to list them: knative-operator lint -f FILE"));
    }
    notes
}

/// Publishes an event when the installation of another version starts, once; returns the report to
/// publish if it takes long. `beyond`: the version that the spec means, if it is another one.
pub fn announce(
    cx: &Context,
    resource: &Knative,
    state: &mut ReconcilerState,
    (plan, version, beyond): (&Plan, &Version, Option<&Version>),
) -> Option<InstallationReport> {
    let installed = installed_version(resource);
    let key = generation_and_version(resource, version);
    if state.announced.as_ref() == Some(&key) || installed == Some(version.to_string().as_str()) {
        return None;
    }
    state.announced = Some(key);
    let from = installed.map(|v| format!(" from {v}")).unwrap_or_default();
    let (count, namespace) = (plan.items().len(), resource.target_namespace());
    let to = beyond.map(|target| format!(" on the way to {target}")).unwrap_or_default();
    let note = format!("Installing version {version}{from}{to}: {count} objects in namespace {namespace}");
    cx.events.normal(resource, "Installing", note);
    let pending = vec![format!("{count} objects to be applied")];
    Some(InstallationReport { pending, ..InstallationReport::of(resource.component()) })
}

/// What the installation of `version` is for `resource`, if the versions `then` follow, for people.
pub fn step(resource: &Knative, version: &Version, then: &[Version]) -> Option<String> {
    let target = then.last()?;
    let from = installed_version(resource).map(|installed| format!(" from {installed}")).unwrap_or_default();
    let then: Vec<_> = then.iter().map(ToString::to_string).collect();
    Some(format!("version {version} on the way{from} to {target} (then {})", then.join(", ")))
}

/// The version in the status of `resource`.
pub fn installed_version(resource: &Knative) -> Option<&str> {
    resource.status().and_then(|s| s.version.as_deref())
}

fn generation_and_version(resource: &Knative, version: &Version) -> String {
    format!("{}@{version}", resource.meta().generation.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::{KnativeServing, KnativeStatus};

    use super::*;

    #[test]
    fn settings_without_effect_have_few_notes() {
        let notes = |count: usize| ignored_notes((0..count).map(|index| index.to_string()));
        assert_eq!(notes(2), ["0", "1"]);
        assert_eq!(notes(MAX_IGNORED).len(), MAX_IGNORED);
        let all = notes(5000);
        assert_eq!(all.len(), MAX_IGNORED + 1);
        assert!(all[MAX_IGNORED].starts_with("4950 more settings have no effect"), "{all:?}");
    }

    #[test]
    fn step_has_the_versions_before_and_after_it() {
        let version = |text: &str| text.parse::<Version>().unwrap();
        let step = |installed: Option<&str>, then: &[&str]| {
            let version_of_status = installed.map(str::to_owned);
            let status = KnativeStatus { version: version_of_status, ..KnativeStatus::default() };
            let serving = KnativeServing { status: Some(status), ..KnativeServing::default() };
            let then: Vec<_> = then.iter().copied().map(version).collect();
            super::step(&Knative::Serving(serving), &version("1.21.3"), &then)
        };
        let expected = "version 1.21.3 on the way from 1.20.3 to 1.23.0 (then 1.22.1, 1.23.0)";
        assert_eq!(step(Some("1.20.3"), &["1.22.1", "1.23.0"]).as_deref(), Some(expected));
        assert_eq!(step(None, &["1.22.1"]).as_deref(), Some("version 1.21.3 on the way to 1.22.1 (then 1.22.1)"));
        // The last one is an installation as any other.
        assert_eq!(step(Some("1.20.3"), &[]), None);
    }
}
