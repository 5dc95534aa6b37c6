//! Resolves the target cluster of a resource.

use std::time::{Duration, Instant};

use knative_operator_shared::api::cluster_profile::HEALTHY;
use knative_operator_shared::api::{ClusterProfileReference, Knative};
use knative_operator_shared::reason::Reason;

use super::context::Context;
use super::outcome::Requeue;
use super::state::Cluster;
use knative_operator_cluster_access::connections::{Connection, Failure};
use knative_operator_cluster_access::profile::{self, Access, insecurity};
use knative_operator_overview::Unresolved;
use knative_operator_overview::unresolved::unbound;

/// Delay before the next look at a cluster that responds.
const RETRY_DELAY: Duration = Duration::from_secs(5);

/// Why the target cluster can't be used.
pub struct ResolveFailure {
    /// The reason.
    pub unresolved: Unresolved,
    /// Time of the next attempt, if another attempt may help.
    due: Option<Instant>,
}

impl ResolveFailure {
    /// Another attempt may help.
    pub fn retry(unresolved: Unresolved) -> Self {
        Self { unresolved, due: Some(Instant::now() + RETRY_DELAY) }
    }

    /// When to reconcile again.
    pub fn requeue(&self) -> Requeue {
        self.due.map_or(Requeue::AwaitChange, |due| {
            Requeue::After(due.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)))
        })
    }
}

impl From<Unresolved> for ResolveFailure {
    /// Something on the hub has to change first.
    fn from(unresolved: Unresolved) -> Self {
        Self { unresolved, due: None }
    }
}

/// How to connect to the cluster of `resource`; `None` for the local cluster.
fn access<'r>(
    cx: &Context,
    resource: &'r Knative,
) -> Result<Option<(&'r ClusterProfileReference, Access)>, Unresolved> {
    let Some(reference) = &resource.common().cluster_profile_ref else { return Ok(None) };
    let Some(providers) = &cx.providers else {
        return Err(Unresolved::new(
            Reason::MulticlusterDisabled,
            "multi-cluster support is disabled: the operator runs without --clusterprofile-provider-file; \
             set knative_operator.multicluster.enabled in its Helm values, or remove the resource",
        ));
    };
    let providers = providers.current();
    let access = cx
        .profiles
        .permitted(reference, &cx.profile_namespaces)
        .and_then(|profile| profile::access(reference, &profile, &providers, cx.allows_http_servers));
    if access.is_err() {
        // Drop the connection: the current settings don't allow one.
        cx.connections.remove(reference);
    }
    Ok(Some((reference, access?)))
}

/// The condition that reports a stale connection, which takes a while to rebuild.
pub async fn stale_connection(cx: &Context, resource: &Knative) -> Option<Unresolved> {
    let (reference, access) = access(cx, resource).ok()??;
    let is_stale = cx.connections.is_stale(reference, &access).await;
    let message = format!(
        "the operator is rebuilding the connection to the cluster of ClusterProfile {reference}, because its settings changed"
    );
    is_stale.then(|| Unresolved::new(Reason::RemoteClusterStale, message))
}

/// The target cluster of `resource`, which responds. `suspect`: check it first.
pub async fn resolve_target(cx: &Context, resource: &Knative, suspect: bool) -> Result<Cluster, ResolveFailure> {
    let Some((reference, access)) = access(cx, resource)? else {
        let uid = cx.hub_identity.uid.as_str().into();
        return Ok(Cluster { client: cx.hub.clone(), serial: 0, uid: Some(uid) });
    };
    let insecure = insecurity(reference, &access);
    let connection = tokio::select! {
        biased;
        connection = cx.connections.get(reference, access, suspect) => connection,
        () = cx.stop.cancelled() => {
            let message = format!("the operator is shutting down; it checks the cluster of ClusterProfile {reference} again after its restart");
            return Err(Unresolved::new(Reason::ClusterProviderClosed, message).into());
        }
    };
    match connection {
        Ok(connection) => {
            let is_new = connection.is_new();
            if let Some(remedy) = connection.remedy().filter(|_| is_new) {
                cx.events.warning(resource, "SecretUnbound", unbound(&remedy));
            }
            if let Some(note) = insecure.filter(|_| is_new) {
                cx.events.warning(resource, "InsecureCluster", note);
            }
            let Connection { client, serial, cluster_uid, .. } = connection;
            Ok(Cluster { client, serial, uid: cluster_uid })
        }
        Err(Failure { error, due, .. }) => {
            Err(ResolveFailure { unresolved: noted(cx, reference, error.into()), due: Some(due) })
        }
    }
}

/// `unresolved`, with a note if nobody vouches for the cluster of `reference`.
fn noted(cx: &Context, reference: &ClusterProfileReference, unresolved: Unresolved) -> Unresolved {
    let Some(note) = note(cx, reference) else { return unresolved };
    Unresolved::new(unresolved.reason, format!("{}; {note}", unresolved.message))
}

/// That nobody vouches for the cluster of `reference`, if so.
pub fn note(cx: &Context, reference: &ClusterProfileReference) -> Option<String> {
    let is_unvouched = cx.profiles.get(reference).is_ok_and(|profile| profile.health().is_none());
    is_unvouched.then(|| {
        format!(
            "ClusterProfile {reference} has no condition {HEALTHY}, so only the connection shows whether the cluster works"
        )
    })
}
