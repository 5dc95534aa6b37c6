//! The revisions of a fleet: which are its own, which are used, and what it rolls out.

use std::collections::BTreeSet;

use knative_operator_shared::api::{Component, KnativeFleet, KnativeFleetStatus};
use knative_operator_shared::version::Version;

use super::observe::Children;
use super::state::FleetState;
use super::store::Store;
use super::write::{self, WriteError};
use crate::controller::context::Context;
use crate::fleet::revision::{self, Owner, RevisionData, Revisions};
use crate::fleet::versions::{self, VersionSources};

/// Names of the revisions that are used.
pub fn used<'a>(children: &'a Children, update: &'a str, rolled_out: [&'a Option<String>; 2]) -> BTreeSet<&'a str> {
    let names = [knative_operator_shared::label::FLEET_REVISION, knative_operator_shared::label::FLEET_PREVIOUS];
    let of_children = children.own.values().flat_map(|child| names.iter().filter_map(|name| child.annotation(name)));
    of_children.chain([update]).chain(rolled_out.into_iter().flatten().map(String::as_str)).collect()
}

/// What `fleet` rolls out, with the versions that its spec means now.
pub fn resolved(
    cx: &Context,
    fleet: &KnativeFleet,
    revisions: &Revisions,
    status: &KnativeFleetStatus,
    children: &Children,
    available: &[(Component, Vec<Version>)],
) -> RevisionData {
    let before = status.update_revision.as_ref().and_then(|update| revisions.get(update));
    let installed =
        children.own.iter().filter_map(|((_, component), child)| Some((*component, child.installed_version()?)));
    let installed: Vec<_> = installed.collect();
    let sources = VersionSources {
        available,
        before: before.map(|revision| &revision.data),
        installed: &installed,
        keeps_installed: cx.library.keeps_installed,
    };
    versions::resolved(RevisionData::of(&fleet.spec), &sources)
}

/// The revisions of `fleet`. Publishes an event, once, about each one that only claims to be.
pub fn own_revisions(cx: &Context, store: &Store, fleet: &KnativeFleet, state: &mut FleetState) -> Revisions {
    let namespace = fleet.metadata.namespace.as_deref().unwrap_or_default();
    let Some(all) = store.revisions.get(namespace) else { return Revisions::new() };
    state.ignored.retain(|name| all.contains_key(name));
    let status = state.stored_status(fleet);
    for (name, reason) in revision::ignored(all, of(fleet, &status)) {
        if state.ignored.insert(name.to_owned()) {
            cx.events.warning(fleet, "RevisionIgnored", format!("ControllerRevision {name} is not used: {reason}"));
        }
    }
    revision::own(all, of(fleet, &status))
}

/// Records `update` in the status of `fleet` before any cluster gets it: after a crash, another
/// revision may be the update. Returns whether that was necessary.
pub async fn record(
    cx: &Context,
    fleet: &KnativeFleet,
    revisions: &Revisions,
    update: &RevisionData,
    status: &mut KnativeFleetStatus,
) -> Result<bool, WriteError> {
    let recorded = Some(revision::recorded(revisions, update, of(fleet, status)));
    if status.revisions == recorded {
        return Ok(false);
    }
    status.revisions = recorded;
    write::status(&cx.hub, fleet, status).await.map(|()| true)
}

/// `fleet` with `status` as the owner of revisions.
pub fn of<'a>(fleet: &'a KnativeFleet, status: &'a KnativeFleetStatus) -> Owner<'a> {
    Owner { name: fleet.metadata.name.as_deref().unwrap_or_default(), uid: of_uid(fleet), status }
}

/// Uid of `fleet`.
pub fn of_uid(fleet: &KnativeFleet) -> &str {
    fleet.metadata.uid.as_deref().unwrap_or_default()
}
