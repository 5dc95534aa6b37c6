//! The version that the record on a cluster has, if the one of the resource may not follow it. Who
//! may write ConfigMaps in the namespace there may forge it.

use knative_operator_runtime::compute::compute;
use knative_operator_runtime::error_text;
use knative_operator_shared::api::Knative;
use knative_operator_shared::version::{Version, VersionError};
use knative_operator_shared::way::Way;
use kube::Client;

use super::context::Context;
use knative_operator_apply::shown_version;
use knative_operator_objects::ObjectId;
use knative_operator_release::VersionSelectionError;

/// Whether a fleet owns `resource`.
fn has_fleet(resource: &Knative) -> bool {
    resource.meta().owner_references.iter().flatten().any(|owner| owner.kind == "KnativeFleet")
}

/// Whether the installed version of `resource` stays while its spec means it. A fleet decides when
/// its resources get another version.
pub fn keeps_installed(cx: &Context, resource: &Knative) -> bool {
    (cx.library.keeps_installed || has_fleet(resource)) && resource.common().manifests.is_empty()
}

/// The way from the `recorded` version, if it is the one to go on with: the spec means it, or one
/// that is reached from there, which the status would have said, if it were not lost.
pub fn way_from(cx: &Context, resource: &Knative, recorded: &Version) -> Option<Way> {
    let keeps = keeps_installed(cx, resource);
    // Own manifests are those of one version: none of another one can be installed with them.
    if let Some(installed) = resource.installed_version().filter(|_| resource.common().manifests.is_empty()) {
        let may_be_followed = may_be_followed(resource, recorded);
        match knative_operator_release::select_way(&cx.library.bundle, resource, keeps) {
            Ok(way) => {
                if let Some(way) = back_to(&installed, recorded, way, may_be_followed) {
                    return Some(way);
                }
            }
            Err(VersionSelectionError::Ineligible(why) | VersionSelectionError::Unavailable(why)) => {
                if may_be_followed && is_left_on_the_way(&installed, recorded, &why) {
                    return Some(Way::to(recorded.clone()));
                }
            }
            Err(VersionSelectionError::Bundle(_)) => return None,
        }
    }
    let way = knative_operator_release::select_way_after(&cx.library.bundle, resource, Some(recorded), keeps).ok()?;
    let has_status = resource.installed_version().is_some();
    may_be_followed(resource, recorded).then(|| beginning_with(recorded, way, has_status)).flatten()
}

/// Whether the `recorded` version is between the `installed` one of the status and the one that the
/// spec means, to which no way leads any more, for the reason `why`: its step is finished, so that
/// nothing stays half applied.
fn is_left_on_the_way(installed: &Version, recorded: &Version, why: &VersionError) -> bool {
    let target = match why {
        VersionError::Minor { target, .. } => Some(target.clone()),
        VersionError::Lacking { target, .. } => target.parse().ok(),
        VersionError::Unavailable { wanted, .. } => wanted.parse().ok(),
        _ => None,
    };
    target.is_some_and(|target: Version| installed < recorded && *recorded < target && !target.is_of(recorded))
}

/// A way from the `recorded` version, which is one step from the `installed` one of the status, if
/// `way`, which leads on from that, is not one: back over the installed version, if it leads the
/// other way; or with the recorded patch release, if it is newer and `may_be_followed`, as after a
/// rollback of the operator, whose archive has it.
fn back_to(installed: &Version, recorded: &Version, way: Way, may_be_followed: bool) -> Option<Way> {
    if may_be_followed && !way.then.is_empty() && way.next.same_minor(recorded) && way.next < *recorded {
        return Some(Way { next: recorded.clone(), ..way });
    }
    let leads_back = installed != recorded
        && installed.may_follow(Some(recorded), "").is_ok()
        && way.next.may_follow(Some(recorded), "").is_err();
    leads_back.then(|| way.after(installed.clone()))
}

/// `way`, which leads on from the `recorded` version, beginning with that one, if the spec means
/// it; or if the status, which had the version on the way up, is lost.
fn beginning_with(recorded: &Version, way: Way, has_status: bool) -> Option<Way> {
    if way.next == *recorded {
        return Some(way);
    }
    let is_interrupted = !has_status && !way.then.is_empty() && way.target() > recorded;
    is_interrupted.then(|| way.after(recorded.clone()))
}

/// Whether the record may say which version `resource` goes on with. A forged one must not lead
/// further than the status allows.
fn may_be_followed(resource: &Knative, recorded: &Version) -> bool {
    resource.installed_version().is_none_or(|installed| {
        !has_fleet(resource) && recorded.may_follow(Some(&installed), resource.component().kind()).is_ok()
    })
}

/// Whether the cluster shows that the `recorded` version is false: what nobody changes who may
/// write ConfigMaps only has the version in the status still, or the `wanted` one.
pub async fn is_disproved(
    cx: &Context,
    resource: &Knative,
    client: &Client,
    wanted: &Version,
    recorded: &Version,
) -> bool {
    // Own manifests may have any labels.
    let Some(installed) = resource.installed_version().filter(|_| resource.common().manifests.is_empty()) else {
        return false;
    };
    if !is_labeled(cx, resource, recorded).await {
        return false;
    }
    match shown_version::on_cluster(client, resource.component()).await {
        Ok(shown) => shown_version::disproves(&shown, recorded, &installed, wanted),
        Err(error) => {
            tracing::warn!(error = error_text(&error), "cannot list the CustomResourceDefinitions of the cluster");
            false
        }
    }
}

/// Whether the definitions of `version` show it, as far as the bundle tells.
async fn is_labeled(cx: &Context, resource: &Knative, version: &Version) -> bool {
    let directory = cx.library.bundle.release(resource.component(), version);
    if !directory.is_dir() {
        return true;
    }
    let objects = compute(resource.namespace(), || cx.library.bundle.objects(&directory)).await;
    objects.is_ok_and(|objects| shown_version::of_release(objects.iter()).contains(version))
}

/// Reports that the `recorded` version in `anchor` is false.
pub fn report_disproved(cx: &Context, resource: &Knative, anchor: &ObjectId, recorded: &Version) {
    let note = format!(
        "{anchor} on the cluster records version {recorded}, but the CustomResourceDefinitions there show that it was never applied: the \
         record is replaced. Check who may change ConfigMaps in namespace {}",
        anchor.namespace
    );
    cx.events.warning(resource, "RecordReplaced", note);
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
    use knative_operator_shared::api::{KnativeServing, KnativeStatus};

    use super::*;

    #[test]
    fn record_leads_no_further_than_the_status_allows() {
        let may_be_followed = |installed: Option<&str>, owner: &str, recorded: &str| {
            let mut serving = KnativeServing::default();
            let owner = OwnerReference { kind: owner.to_owned(), ..OwnerReference::default() };
            serving.metadata.owner_references = Some(vec![owner]);
            serving.status = Some(KnativeStatus { version: installed.map(str::to_owned), ..KnativeStatus::default() });
            super::may_be_followed(&Knative::Serving(serving), &recorded.parse().unwrap())
        };
        assert!(may_be_followed(Some("1.22.1"), "", "1.23.0"));
        assert!(!may_be_followed(Some("1.22.1"), "", "1.24.0") && !may_be_followed(Some("1.22.1"), "", "99.0.0"));
        assert!(!may_be_followed(Some("1.22.1"), "KnativeFleet", "1.23.0"));
        assert!(may_be_followed(None, "KnativeFleet", "1.23.0") && may_be_followed(None, "", "1.24.0"));
    }

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    fn way(versions: &[&str]) -> Way {
        let mut all = versions.iter().copied().map(version);
        Way { next: all.next().unwrap(), then: all.collect() }
    }

    /// All versions of a way.
    fn text(Way { next, then }: Way) -> String {
        then.iter().fold(next.to_string(), |text, version| format!("{text} {version}"))
    }

    #[test]
    fn unfinished_step_is_taken_back_first() {
        let back_to = |installed: &str, recorded: &str, versions: &[&str], may_be_followed: bool| {
            super::back_to(&version(installed), &version(recorded), way(versions), may_be_followed).map(text)
        };
        assert_eq!(back_to("1.21.3", "1.22.1", &["1.20.3"], true).as_deref(), Some("1.21.3 1.20.3"));
        assert_eq!(back_to("1.22.1", "1.21.3", &["1.23.0"], false).as_deref(), Some("1.22.1 1.23.0"));
        assert_eq!(back_to("1.21.3", "1.22.1", &["1.22.1", "1.23.0"], true), None, "it goes on");
        assert_eq!(back_to("1.21.3", "1.22.1", &["1.21.4"], true), None, "it is a neighbor");
        assert_eq!(back_to("1.21.3", "1.24.0", &["1.20.3"], true), None, "forged, or as after a restore");
        // The bundle of an older operator has another patch release.
        assert_eq!(back_to("1.20.3", "1.21.3", &["1.21.2", "1.22.1"], true).as_deref(), Some("1.21.3 1.22.1"));
        assert_eq!(back_to("1.20.3", "1.21.3", &["1.21.2", "1.22.1"], false), None);
    }

    #[test]
    fn step_whose_way_is_lost_is_finished() {
        let minor = |target: &str| VersionError::Minor {
            kind: "KnativeServing",
            installed: version("1.20.3"),
            target: version(target),
        };
        let lacking = VersionError::Lacking {
            lacking: "1.22".to_owned(),
            installed: version("1.20.3"),
            target: "1.23.0".to_owned(),
        };
        let unavailable = |wanted: &str| VersionError::Unavailable { wanted: wanted.to_owned(), available: Vec::new() };
        let is_left =
            |recorded: &str, why: &VersionError| is_left_on_the_way(&version("1.20.3"), &version(recorded), why);
        for why in [minor("1.23.0"), lacking, unavailable("1.23")] {
            assert!(is_left("1.21.3", &why) && is_left("1.20.4", &why), "{why}");
            // The status has it; or it is not on the way.
            assert!(!is_left("1.20.3", &why) && !is_left("1.19.0", &why) && !is_left("1.23.0", &why), "{why}");
        }
        // Down, the version of the status follows the record as in any upgrade.
        assert!(!is_left("1.19.3", &minor("1.17.0")));
        assert!(
            !is_left("1.21.3", &unavailable("latest")) && !is_left("1.21.3", &VersionError::Syntax("x".to_owned()))
        );
    }

    #[test]
    fn lost_status_goes_on_up_from_the_record() {
        let beginning_with = |recorded: &str, versions: &[&str], has_status: bool| {
            super::beginning_with(&version(recorded), way(versions), has_status).map(text)
        };
        let (meant, up, down) = (&["1.22.1"][..], &["1.22.1", "1.23.0"][..], &["1.22.1", "1.21.3"][..]);
        assert_eq!(beginning_with("1.22.1", meant, true).as_deref(), Some("1.22.1"));
        assert_eq!(beginning_with("1.21.3", up, false).as_deref(), Some("1.21.3 1.22.1 1.23.0"));
        assert_eq!(beginning_with("1.21.3", up, true), None);
        assert_eq!(beginning_with("1.23.0", down, false), None, "as after a restore");
        assert_eq!(beginning_with("1.21.3", meant, false), None, "it may follow, or not, without a way");
    }
}
