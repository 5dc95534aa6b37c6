//! `spec.config`: entries of the component's ConfigMaps.

use knative_operator_rules::short;
use serde_json::{Value, json};

use super::context::Context;
use super::error::TransformError;
use knative_operator_objects::text;

/// Sets the entries for this ConfigMap, given under its full name or its name without `config-`;
/// the full name wins. Other entries stay.
pub fn set_entries(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    if text(object, "/kind") != "ConfigMap" {
        return Ok(());
    }
    let config = &cx.resource.common().config;
    let name = text(object, "/metadata/name");
    let Some(entries) = config.get(name).or_else(|| config.get(short(name)?)) else { return Ok(()) };
    for (key, value) in entries {
        let data = &mut object["data"];
        if !(data.is_object() || data.is_null()) {
            return Err(TransformError::NotMapping("data".to_owned()));
        }
        data[key] = json!(value);
    }
    Ok(())
}
