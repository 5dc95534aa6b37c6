//! The version that the record on a cluster has, if the one of the resource may not follow it. Who
//! may write ConfigMaps in the namespace there may forge it.

use knative_operator_runtime::error_text;
use knative_operator_shared::api::Knative;
use knative_operator_shared::version::Version;
use kube::Client;

use super::context::Context;
use knative_operator_apply::shown_version;
use knative_operator_objects::ObjectId;

/// Whether a fleet owns `resource`.
fn has_fleet(resource: &Knative) -> bool {
    resource.meta().owner_references.iter().flatten().any(|owner| owner.kind == "KnativeFleet")
}

/// Whether the installed version of `resource` stays while its spec means it. A fleet decides when
/// its resources get another version.
pub fn keeps_installed(cx: &Context, resource: &Knative) -> bool {
    (cx.library.keeps_installed || has_fleet(resource)) && resource.common().manifests.is_empty()
}

/// Whether the `recorded` version is the one to go on with: the spec means it, which the status
/// would have said, if it were not lost.
pub fn is_meant(cx: &Context, resource: &Knative, recorded: &Version) -> bool {
    let keeps = keeps_installed(cx, resource);
    let selected = knative_operator_release::select_version_after(&cx.library.bundle, resource, Some(recorded), keeps);
    may_be_followed(resource, recorded) && selected.is_ok_and(|selected| selected == *recorded)
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
    if !is_labeled(cx, resource, recorded) {
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
fn is_labeled(cx: &Context, resource: &Knative, version: &Version) -> bool {
    let directory = cx.library.bundle.release(resource.component(), version);
    if !directory.is_dir() {
        return true;
    }
    let objects = tokio::task::block_in_place(|| cx.library.bundle.objects(&directory));
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
}
