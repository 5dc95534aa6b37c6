//! `spec.services`: overrides of Services.

use serde_json::{Value, json};

use super::context::Context;
use super::error::TransformError;
use super::pod::add_metadata;
use knative_operator_objects::text;

/// Sets the given labels, annotations and selector entries.
pub fn replace(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    if text(object, "/kind") != "Service" {
        return Ok(());
    }
    let name = text(object, "/metadata/name").to_owned();
    for given in cx.resource.common().services.iter().filter(|s| s.name == name) {
        add_metadata(object, "labels", &given.labels);
        add_metadata(object, "annotations", &given.annotations);
        for (key, value) in &given.selector {
            object["spec"]["selector"][key] = json!(value);
        }
    }
    Ok(())
}
