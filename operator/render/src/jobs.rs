//! Jobs run once per version, so their name contains the version.

use knative_operator_shared::api::Component;
use serde_json::{Value, json};

use super::context::Context;
use super::error::TransformError;
use knative_operator_objects::text;

/// Name of the Job `object` of the release `version` of `component`.
pub fn name(object: &Value, component: Component, version: &str) -> String {
    let component = component.word();
    match (text(object, "/metadata/name"), text(object, "/metadata/generateName")) {
        ("", generate) => format!("{generate}{component}-{version}"),
        (name, _) => format!("{name}-{component}-{version}"),
    }
}

/// Name in the release of the rendered Job `object`, which has a name that [`name`] made.
pub fn released_name<'o>(object: &'o Value, component: Component, version: &str) -> &'o str {
    let name = text(object, "/metadata/name");
    name.strip_suffix(&format!("-{}-{version}", component.word())).unwrap_or(name)
}

/// Sets the name of the Job from component and version, and disables Istio's sidecar, which would
/// keep it from completing.
pub fn set_name(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    if text(object, "/kind") != "Job" {
        return Ok(());
    }
    object["metadata"]["name"] = json!(name(object, cx.resource.component(), &cx.version.to_string()));
    let inject = &mut object["spec"]["template"]["metadata"]["labels"]["sidecar.istio.io/inject"];
    if inject.as_str().unwrap_or_default().is_empty() {
        *inject = json!("false");
    }
    Ok(())
}
