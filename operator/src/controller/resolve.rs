//! Finds the cluster that a resource is for.

use knative_operator_shared::api::Knative;
use knative_operator_shared::reason::Reason;
use kube::Client;

use super::Context;
use crate::cluster::{Unresolved, profile};

/// The cluster that a resource is for.
#[derive(Clone)]
pub struct Cluster {
    /// Its client.
    pub client: Client,
    /// Changes whenever the connection is another one; 0 is the local cluster.
    pub serial: u64,
}

/// The cluster of `resource`, which answers. `suspect`: whether there is reason to doubt that it does.
pub async fn cluster(cx: &Context, resource: &Knative, suspect: bool) -> Result<Cluster, Unresolved> {
    let Some(reference) = &resource.common().cluster_profile_ref else {
        return Ok(Cluster { client: cx.hub.clone(), serial: 0 });
    };
    let Some(providers) = &cx.providers else {
        return Err(Unresolved::new(
            Reason::MulticlusterDisabled,
            "multi-cluster support is disabled: the operator runs without --clusterprofile-provider-file; \
             set knative_operator.multicluster.enabled in its Helm values, or remove the resource",
        ));
    };
    let profile = cx.profiles.get(reference)?;
    let access = profile::access(reference, &profile, providers)?;
    let connection = cx.connections.get(reference, access, suspect).await?;
    Ok(Cluster { client: connection.client, serial: connection.serial })
}
