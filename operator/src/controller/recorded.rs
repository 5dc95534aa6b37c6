//! The version that the record on a cluster has, if the one of the resource may not follow it.

use knative_operator_shared::api::Knative;
use knative_operator_shared::version::Version;

use super::context::Context;
use crate::release;

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
    let selected = release::select_version_after(&cx.library.bundle, resource, Some(recorded), keeps);
    selected.is_ok_and(|selected| selected == *recorded)
}
