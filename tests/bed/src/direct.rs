//! Requests with JSON bodies, for values that kubectl and typed clients refuse.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::Result;
use crate::cluster::Cluster;

/// Time limit until an opened definition takes effect.
const LIMIT: Duration = crate::wait::LIMIT;

/// Makes the definition of `resource` admit everything; returns its schema before.
pub async fn open(hub: &Cluster, resource: &str) -> Result<Value> {
    let definition: Value = serde_json::from_str(&hub.kubectl(&["get", "crd", resource, "-o", "json"], "").await?)?;
    let anything = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let opened =
        json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": anything}]).to_string();
    hub.kubectl(&["patch", "crd", resource, "--type=json", "-p", &opened], "").await?;
    Ok(definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone())
}

/// Sends `body` to `path`, until the API server accepts it: an opened definition takes effect a
/// moment later.
pub async fn send(cluster: &Cluster, method: &str, path: &str, body: &Value) -> Result<Value> {
    let started = Instant::now();
    loop {
        let type_ = if method == "PATCH" { "application/json-patch+json" } else { "application/json" };
        let request = http::Request::builder().method(method).uri(path).header("content-type", type_);
        let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        match cluster.client().request_text(request.body(bytes)?).await {
            Ok(text) => return Ok(serde_json::from_str(&text)?),
            // Polled: nothing reports when the definition takes effect.
            Err(_) if started.elapsed() < LIMIT => tokio::time::sleep(Duration::from_millis(200)).await,
            Err(error) => return Err(format!("{method} {path}: {error}").into()),
        }
    }
}

/// The object at `path`.
pub async fn get(cluster: &Cluster, path: &str) -> Result<Value> {
    send(cluster, "GET", path, &Value::Null).await
}

/// Sets `field` of the object at `path` to `value`, or removes it.
pub async fn set(cluster: &Cluster, path: &str, field: &str, value: Option<&Value>) -> Result<Value> {
    let change = value
        .map_or(json!({"op": "remove", "path": field}), |value| json!({"op": "add", "path": field, "value": value}));
    send(cluster, "PATCH", path, &json!([change])).await
}
