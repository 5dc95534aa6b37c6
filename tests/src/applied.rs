//! Objects that the operator applied, to compare clusters.

use std::collections::BTreeMap;

use knative_operator_shared::label::DIGEST;
use kube::api::ListParams;
use kube::core::DynamicObject;
use kube::{Api, ResourceExt};
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

/// An object that the operator applied.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Its uid.
    pub uid: String,
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
    let client = cluster.client();
    let discovery = kube::discovery::Discovery::new(client.clone()).exclude(&OTHER_GROUPS).run_aggregated().await?;
    let mut state = BTreeMap::new();
    for (resource, _) in discovery.groups().flat_map(kube::discovery::ApiGroup::recommended_resources) {
        let Ok(listed) = Api::<DynamicObject>::all_with(client.clone(), &resource).list(&ListParams::default()).await
        else {
            continue;
        };
        for mut object in listed.items.into_iter().filter(|o| o.annotations().contains_key(DIGEST)) {
            let name = format!("{} {}/{}", resource.kind, object.namespace().unwrap_or_default(), object.name_any());
            // The digest includes the owner's uid.
            object.annotations_mut().remove(DIGEST);
            let owners: Vec<_> = object.owner_references().iter().map(|o| format!("{} {}", o.kind, o.name)).collect();
            let mut data = object.data.clone();
            for path in ["/spec", "/spec/template/metadata/labels"] {
                let assigned =
                    ["clusterIP", "clusterIPs", "selector", "controller-uid", "batch.kubernetes.io/controller-uid"];
                let of_job = resource.kind == "Job" || resource.kind == "Service";
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
            state.insert(name, Applied { uid: object.uid().unwrap_or_default(), content });
        }
    }
    Ok(state)
}
