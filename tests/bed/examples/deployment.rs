//! Creates a Deployment in a control plane of its own, and waits until it is available.

#![allow(clippy::large_futures)] // it runs once

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::json;
use test_bed::cluster::Cluster;
use test_bed::{Result, wait};

#[tokio::main]
async fn main() -> Result<()> {
    let cluster = Cluster::hub("example").await?;
    let (labels, container) = (json!({"app": "web"}), json!({"name": "web", "image": "example/web:1"}));
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [container]}});
    let deployment = json!({
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "default"},
        "spec": {"replicas": 2, "selector": {"matchLabels": labels}, "template": template},
    });
    cluster.put(&deployment).await?;
    // KWOK plays the Pods.
    let deployments: Api<Deployment> = Api::namespaced(cluster.client(), "default");
    wait::until(&deployments, "web", wait::LIMIT, "available", wait::available).await?;
    print!("{}", cluster.kubectl(&["get", "deployments"], "").await?);
    Ok(())
}
