//! Objects of a cluster, and those that remain after a deletion.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use kube::api::ListParams;
use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta};
use kube::discovery::{ApiGroup, Discovery, verbs};
use kube::{Api, Client};

use crate::Result;
use crate::cluster::Cluster;

/// Start of the names of archived releases.
pub const ARCHIVE: &str = "knative-operator-release-knative-";

/// Objects of a cluster, as `Kind.group namespace/name`: everything that can be listed, except for
/// CRDs and their APIServices, events, Leases, the archive of releases, which stays with the
/// operator, and objects of the API server itself (addresses of Services).
pub async fn objects(client: &Client) -> Result<BTreeSet<String>> {
    Ok(metadata(client).await?.into_keys().collect())
}

/// The metadata of [`objects`].
pub async fn metadata(client: &Client) -> Result<BTreeMap<String, ObjectMeta>> {
    let discovery =
        Discovery::new(client.clone()).exclude(&["events.k8s.io", "coordination.k8s.io"]).run_aggregated().await?;
    let mut objects = BTreeMap::new();
    for (resource, capabilities) in discovery.groups().flat_map(ApiGroup::recommended_resources) {
        if !capabilities.supports_operation(verbs::LIST)
            || matches!(resource.kind.as_str(), "Event" | "CustomResourceDefinition" | "APIService" | "IPAddress")
        {
            continue;
        }
        let api: Api<PartialObjectMeta<DynamicObject>> = Api::all_with(client.clone(), &resource);
        let deadline = Instant::now() + crate::wait::LIMIT;
        let listed = loop {
            match api.list_metadata(&ListParams::default()).await {
                // Its kind was defined a moment ago.
                Err(kube::Error::Api(status)) if status.code == 429 && Instant::now() < deadline => {
                    tokio::time::sleep(Duration::from_millis(200)).await;
                }
                other => break other?,
            }
        };
        for object in listed {
            let meta = object.metadata;
            let (namespace, name) =
                (meta.namespace.as_deref().unwrap_or_default(), meta.name.as_deref().unwrap_or_default());
            if !name.starts_with(ARCHIVE) {
                objects.insert(format!("{}.{} {namespace}/{name}", resource.kind, resource.group), meta);
            }
        }
    }
    Ok(objects)
}

/// Names of the objects that Kubernetes creates in each namespace, sometimes in one that was just
/// deleted.
const OF_EACH_NAMESPACE: [(&str, &str); 2] = [("ConfigMap. ", "/kube-root-ca.crt"), ("ServiceAccount. ", "/default")];

/// Objects of a cluster that were not there `before`, once the cluster is idle. Dependents of
/// deleted objects (ReplicaSets, EndpointSlices) are collected by other controllers a moment later,
/// so no single object can be watched.
pub async fn remaining(cluster: &Cluster, before: &BTreeSet<String>) -> Result<Vec<String>> {
    let deadline = Instant::now() + crate::wait::LIMIT;
    loop {
        let is_of_namespace = |object: &&String| {
            OF_EACH_NAMESPACE.iter().any(|(kind, name)| object.starts_with(kind) && object.ends_with(name))
        };
        let now = objects(&cluster.client()).await?;
        let left: Vec<String> = now.difference(before).filter(|object| !is_of_namespace(object)).cloned().collect();
        if left.is_empty() || Instant::now() > deadline {
            return Ok(left);
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
}
