//! Finds the cluster that a resource is for.

use std::time::{Duration, Instant};

use knative_operator_shared::api::{ClusterProfileReference, Knative};
use knative_operator_shared::reason::Reason;
use kube::Client;

use super::Context;
use super::actor::Next;
use crate::cluster::profile::{self, Access};
use crate::cluster::{Unresolved, connections};

/// The cluster that a resource is for.
#[derive(Clone)]
pub struct Cluster {
    /// Its client.
    pub client: Client,
    /// Changes whenever the connection is another one; 0 is the local cluster.
    pub serial: u64,
}

/// Why there is none.
pub struct Failure {
    /// The reason.
    pub unresolved: Unresolved,
    /// When it is tried again, if trying again may help.
    due: Option<Instant>,
}

impl Failure {
    /// When the next pass is made.
    pub fn next(&self) -> Next {
        self.due.map_or(Next::Idle, |due| {
            Next::After(due.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)))
        })
    }
}

impl From<Unresolved> for Failure {
    /// Something on the hub has to change first.
    fn from(unresolved: Unresolved) -> Self {
        Self { unresolved, due: None }
    }
}

/// How the cluster of `resource` is reached; none if it is the local one.
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
    let (profile, providers) = (cx.profiles.get(reference), providers.current());
    let access = profile.and_then(|profile| profile::access(reference, &profile, &providers));
    if access.is_err() {
        // What can't be reached by what is known now is not held on to.
        cx.connections.forget(reference);
    }
    access.map(|access| Some((reference, access)))
}

/// That the connection to the cluster of `resource` has to be rebuilt, if it has: that may take a while.
pub async fn stale(cx: &Context, resource: &Knative) -> Option<Unresolved> {
    let (reference, access) = access(cx, resource).ok()??;
    let stale = cx.connections.is_stale(reference, &access).await;
    let message = format!(
        "the connection to the cluster of ClusterProfile {reference} is being rebuilt: how it is reached has changed"
    );
    stale.then(|| Unresolved::new(Reason::RemoteClusterStale, message))
}

/// The cluster of `resource`, which answers. `suspect`: whether there is reason to doubt that it does.
pub async fn cluster(cx: &Context, resource: &Knative, suspect: bool) -> Result<Cluster, Failure> {
    let Some((reference, access)) = access(cx, resource)? else {
        return Ok(Cluster { client: cx.hub.clone(), serial: 0 });
    };
    let insecure = access.insecure.then(|| access.server.to_string());
    let connection = tokio::select! {
        biased;
        connection = cx.connections.get(reference, access, suspect) => connection,
        () = cx.stop.cancelled() => {
            let message = format!("the operator is shutting down; the cluster of ClusterProfile {reference} is looked at again when it is back");
            return Err(Unresolved::new(Reason::ClusterProviderClosed, message).into());
        }
    };
    match connection {
        Ok(connection) => {
            if let Some(server) = insecure.filter(|_| connection.is_new()) {
                let note = format!(
                    "insecure-skip-tls-verify is set in ClusterProfile {reference}: whoever answers as {server} gets the credential; \
                     set certificate-authority-data instead"
                );
                cx.events.warning(resource, "InsecureCluster", note);
            }
            Ok(Cluster { client: connection.client.clone(), serial: connection.serial })
        }
        Err(connections::Failure { unresolved, due, .. }) => Err(Failure { unresolved, due: Some(due) }),
    }
}
