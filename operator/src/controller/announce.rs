//! Events about an installation before it is applied: which version, and which settings have no
//! effect.

use knative_operator_shared::api::Knative;
use knative_operator_shared::version::Version;

use super::conditions::InstallationReport;
use super::context::Context;
use super::state::ReconcilerState;
use knative_operator_objects::plan::Plan;
use knative_operator_release::Release;

/// Publishes an event for each setting without effect, and for a version that the bundle lacks,
/// once per generation and version.
pub fn warn_of_ignored_overrides(
    cx: &Context,
    resource: &Knative,
    state: &mut ReconcilerState,
    (release, version): (&Release, &Version),
) {
    let key = generation_and_version(resource, version);
    if state.warned.as_ref() != Some(&key) {
        state.warned = Some(key);
        if let Some(advice) = &release.advice {
            cx.events.warning(resource, "VersionNotInBundle", advice.clone());
        }
        let unmatched = knative_operator_render::names(release.objects()).unmatched(resource);
        for warning in release.warnings.iter().cloned().chain(unmatched.iter().map(ToString::to_string)) {
            cx.events.warning(resource, "OverrideIgnored", warning);
        }
    }
}

/// Publishes an event when the installation of another version starts, once; returns the report to
/// publish if it takes long.
pub fn announce(
    cx: &Context,
    resource: &Knative,
    state: &mut ReconcilerState,
    (plan, version): (&Plan, &Version),
) -> Option<InstallationReport> {
    let installed = installed_version(resource);
    let key = generation_and_version(resource, version);
    if state.announced.as_ref() == Some(&key) || installed == Some(version.to_string().as_str()) {
        return None;
    }
    state.announced = Some(key);
    let from = installed.map(|v| format!(" from {v}")).unwrap_or_default();
    let (count, namespace) = (plan.items().len(), resource.target_namespace());
    let note = format!("Installing version {version}{from}: {count} objects in namespace {namespace}");
    cx.events.normal(resource, "Installing", note);
    let pending = vec![format!("{count} objects to be applied")];
    Some(InstallationReport { pending, ..InstallationReport::of(resource.component()) })
}

/// The version in the status of `resource`.
pub fn installed_version(resource: &Knative) -> Option<&str> {
    resource.status().and_then(|s| s.version.as_deref())
}

fn generation_and_version(resource: &Knative, version: &Version) -> String {
    format!("{}@{version}", resource.meta().generation.unwrap_or_default())
}
