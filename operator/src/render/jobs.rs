//! A Job runs once a version, so its name carries the version.

use serde_json::{Value, json};

use super::Context;
use crate::object::text;

/// Names the Job after its component and version, and keeps Istio's sidecar, which never ends, out of it.
pub fn name(object: &mut Value, cx: &Context<'_>) -> Result<(), String> {
    if text(object, "/kind") != "Job" {
        return Ok(());
    }
    let (word, version) = (cx.resource.component().word(), cx.version);
    let name = match (text(object, "/metadata/name"), text(object, "/metadata/generateName")) {
        ("", generate) => format!("{generate}{word}-{version}"),
        (name, _) => format!("{name}-{word}-{version}"),
    };
    object["metadata"]["name"] = json!(name);
    let inject = &mut object["spec"]["template"]["metadata"]["labels"]["sidecar.istio.io/inject"];
    if inject.as_str().unwrap_or_default().is_empty() {
        *inject = json!("false");
    }
    Ok(())
}
