//! Nobody owns a namespaced object but who installs it, which a plan adds.

use serde_json::Value;

use super::Context;
use crate::object::text;

/// Takes away the owners that a namespaced object was released with.
pub fn clear(object: &mut Value, _: &Context<'_>) -> Result<(), String> {
    if !text(object, "/metadata/namespace").is_empty()
        && let Some(metadata) = object["metadata"].as_object_mut()
    {
        metadata.remove("ownerReferences");
    }
    Ok(())
}
