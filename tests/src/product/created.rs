//! The objects of the chart, created without a Helm release.

use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use serde_json::{Value, json};

use super::{NAMESPACE, READY};
use crate::cluster::Cluster;
use crate::{Result, wait};

/// Interval of polls.
const POLL: Duration = Duration::from_millis(20);

/// Creates the objects of the chart in `rendered`, in their order, as Helm marks them. Waits until
/// the definitions are served and the Deployments are available, as `helm install --wait`.
pub(super) async fn create(hub: &Cluster, rendered: &str) -> Result<()> {
    let deployments = Api::<Deployment>::namespaced(hub.client(), NAMESPACE);
    let mut objects = serde_saphyr::from_multiple::<Value>(rendered)?;
    objects.retain(|object| !object.is_null());
    for object in &mut objects {
        for (name, value) in [("name", "knative-operator"), ("namespace", NAMESPACE)] {
            object["metadata"]["annotations"][format!("meta.helm.sh/release-{name}")] = json!(value);
        }
        hub.create(object, false).await?;
    }
    for object in &objects {
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        if object["kind"] == "Deployment" {
            Box::pin(wait::until(&deployments, name, READY, "available", wait::available)).await?;
        } else if object["kind"] == "CustomResourceDefinition" {
            served(hub, object).await?;
        }
    }
    Ok(())
}

/// Waits until `definition` is served. Polled: to read definitions costs more.
async fn served(hub: &Cluster, definition: &Value) -> Result<()> {
    let spec = &definition["spec"];
    let part = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let (group, version) = (part(&spec["group"]), part(&spec["versions"][0]["name"]));
    let path = format!("/apis/{group}/{version}/{}?limit=1", part(&spec["names"]["plural"]));
    let started = Instant::now();
    while let Err(error) = hub.client().request_text(http::Request::get(path.as_str()).body(Vec::new())?).await {
        if started.elapsed() > READY {
            return Err(format!("{path}: {error}").into());
        }
        tokio::time::sleep(POLL).await;
    }
    Ok(())
}
