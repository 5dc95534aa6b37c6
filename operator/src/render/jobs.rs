//! Jobs run once per version, so their name contains the version.

use serde_json::{Value, json};

use super::context::Context;
use crate::object::text;

/// Sets the name of the Job from component and version, and disables Istio's sidecar, which would
/// keep it from completing.
pub fn set_name(object: &mut Value, cx: &Context<'_>) -> Result<(), String> {
    if text(object, "/kind") != "Job" {
        return Ok(());
    }
    let (component, version) = (cx.resource.component().word(), cx.version);
    let name = match (text(object, "/metadata/name"), text(object, "/metadata/generateName")) {
        ("", generate) => format!("{generate}{component}-{version}"),
        (name, _) => format!("{name}-{component}-{version}"),
    };
    object["metadata"]["name"] = json!(name);
    let inject = &mut object["spec"]["template"]["metadata"]["labels"]["sidecar.istio.io/inject"];
    if inject.as_str().unwrap_or_default().is_empty() {
        *inject = json!("false");
    }
    Ok(())
}
