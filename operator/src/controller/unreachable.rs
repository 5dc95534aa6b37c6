//! Deletions whose cluster is unreachable.

use jiff::{SignedDuration, Timestamp};
use knative_operator_shared::api::Knative;
use knative_operator_shared::condition::TARGET_CLUSTER_RESOLVED;
use knative_operator_shared::label::{ON_UNREACHABLE, ORPHAN};
use knative_operator_shared::reason::Reason;

use super::context::Context;
use super::state::ReconcilerState;

/// Time that a cluster must be unreachable before its resource is orphaned, so that a short outage
/// does not count.
pub const ORPHAN_DELAY: SignedDuration = SignedDuration::from_secs(10);

/// Whether the cluster of `resource`, which is not resolved for `reason`, is unreachable. If
/// something on the hub can't be read, nothing is known about it.
pub fn counts_as_unreachable(cx: &Context, resource: &Knative, reason: Reason) -> bool {
    let reference = resource.common().cluster_profile_ref.as_ref();
    match reason {
        Reason::RemoteClientCreationFailed | Reason::ClusterProviderClosed => false,
        // It can be read, but names no provider in common with the provider file.
        Reason::ClusterProfileUnavailable => reference.is_some_and(|reference| cx.profiles.get(reference).is_ok()),
        Reason::MulticlusterDisabled
        | Reason::AccessProviderNotConfigured
        | Reason::ClusterProfileNotPermitted
        | Reason::ClusterProfileNotFound
        | Reason::ClusterProfileNotReady
        | Reason::AccessProviderFailed
        | Reason::CredentialNotBound
        | Reason::RemoteClusterUnreachable
        | Reason::RemoteClusterUnauthorized
        | Reason::RemoteClusterStale => true,
    }
}

/// Since when the cluster of `resource` has been unreachable, from its condition; now, if it has
/// none.
pub fn unreachable_since(state: &ReconcilerState, resource: &Knative) -> Timestamp {
    let current = state.status(resource);
    let condition = current.conditions.iter().find(|c| c.type_ == TARGET_CLUSTER_RESOLVED && c.status == "False");
    condition.and_then(|c| c.last_transition_time.as_ref()?.parse().ok()).unwrap_or_else(Timestamp::now)
}

/// Describes the installation, as far as it is known without the cluster.
pub fn describe_installation(state: &ReconcilerState, resource: &Knative) -> String {
    let version = resource.status().and_then(|s| s.version.as_deref());
    let version = version.map_or_else(|| "partly installed".to_owned(), |v| format!("version {v}"));
    let known =
        state.anchor.as_ref().map(|owned| format!("{} objects of ", owned.inventory.entries.len())).unwrap_or_default();
    let component = resource.component();
    format!("{known}{component}, {version}, in namespace {} and cluster-scoped", resource.target_namespace())
}

/// Message of a deletion that waits: the reason, since when, and how to continue without the
/// cluster.
pub fn waiting_message(state: &ReconcilerState, resource: &Knative, why: &str, since: Timestamp) -> String {
    let (kind, name, namespace) =
        (resource.component().kind().to_ascii_lowercase(), resource.name(), resource.namespace());
    format!(
        "{why}; the deletion has been waiting for the cluster since {since}, so that it leaves nothing behind ({}), and continues when the cluster is reachable. \
         To delete the resource and leave its objects on the cluster: kubectl annotate {kind} {name} -n {namespace} {ON_UNREACHABLE}={ORPHAN} \
         (an event and a metric record them); or, without a record: \
         kubectl patch {kind} {name} -n {namespace} --type=merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'",
        describe_installation(state, resource)
    )
}
