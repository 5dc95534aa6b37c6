//! Owner references: the plan adds the owner of the installation.

use serde_json::Value;

use super::context::Context;
use super::error::TransformError;
use knative_operator_objects::text;

/// Removes owner references that a namespaced object was released with.
pub fn clear(object: &mut Value, _: &Context<'_>) -> Result<(), TransformError> {
    if !text(object, "/metadata/namespace").is_empty()
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.remove("ownerReferences");
    }
    Ok(())
}
