//! Objects that the operator applied, to compare clusters.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use knative_operator_shared::label::{DIGEST, OWNER_DIGEST};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::Result;
use crate::cluster::Cluster;

/// API groups of which Knative's releases have no objects.
const OTHER_GROUPS: [&str; 12] = [
    "apiregistration.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "certificates.k8s.io",
    "coordination.k8s.io",
    "discovery.k8s.io",
    "events.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "node.k8s.io",
    "resource.k8s.io",
    "scheduling.k8s.io",
    "storage.k8s.io",
];

/// Lists at the same time.
const LISTS: usize = 8;

/// An object that the operator applied.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Its uid.
    pub uid: String,
    /// The mark of the installation's owner; empty if it has none.
    pub mark: String,
    /// The object, without what differs between clusters.
    pub content: Value,
}

/// The objects that the operator applied to `cluster`, by kind, namespace and name, without what
/// differs between clusters.
pub async fn objects(cluster: &Cluster) -> Result<BTreeMap<String, Value>> {
    Ok(with_uids(cluster).await?.into_iter().map(|(name, applied)| (name, applied.content)).collect())
}

/// Like [`objects`], with uids.
pub async fn with_uids(cluster: &Cluster) -> Result<BTreeMap<String, Applied>> {
    let client = &cluster.client();
    let discovery = kube::discovery::Discovery::new(client.clone()).exclude(&OTHER_GROUPS).run_aggregated().await?;
    let resources = discovery.groups().flat_map(kube::discovery::ApiGroup::recommended_resources);
    let lists = stream::iter(resources).map(async |(resource, _)| list(client, resource).await);
    Ok(lists.buffer_unordered(LISTS).concat().await.into_iter().collect())
}

/// The applied objects of `resource`; none if it can't be listed.
async fn list(client: &Client, resource: ApiResource) -> Vec<(String, Applied)> {
    let api = Api::<DynamicObject>::all_with(client.clone(), &resource);
    let Ok(listed) = api.list(&ListParams::default()).await else { return Vec::new() };
    let applied = listed.items.into_iter().filter(|o| o.annotations().contains_key(DIGEST));
    applied.map(|object| comparable(&resource.kind, object)).collect()
}

fn comparable(kind: &str, mut object: DynamicObject) -> (String, Applied) {
    let name = format!("{kind} {}/{}", object.namespace().unwrap_or_default(), object.name_any());
    let mark = object.annotations().get(OWNER_DIGEST).cloned().unwrap_or_default();
    // The digests include the owner's uid, and the hub.
    object.annotations_mut().retain(|name, _| ![DIGEST, OWNER_DIGEST].contains(&name.as_str()));
    let owners: Vec<_> = object.owner_references().iter().map(|o| format!("{} {}", o.kind, o.name)).collect();
    let mut data = object.data.take();
    for path in ["/spec", "/spec/template/metadata/labels"] {
        let assigned = ["clusterIP", "clusterIPs", "selector", "controller-uid", "batch.kubernetes.io/controller-uid"];
        let of_job = kind == "Job" || kind == "Service";
        if let Some(fields) = data.pointer_mut(path).and_then(Value::as_object_mut).filter(|_| of_job) {
            fields.retain(|key, _| !assigned.contains(&key.as_str()));
        }
    }
    for port in data.pointer_mut("/spec/ports").and_then(Value::as_array_mut).into_iter().flatten() {
        port.as_object_mut().map(|fields| fields.remove("nodePort"));
    }
    data.as_object_mut().map(|fields| fields.remove("status"));
    let content =
        json!({"labels": object.labels(), "annotations": object.annotations(), "owners": owners, "data": data});
    (name, Applied { uid: object.uid().unwrap_or_default(), mark, content })
}
