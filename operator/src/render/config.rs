//! `spec.config`: entries of the component's ConfigMaps.

use knative_operator_shared::rules::short;
use serde_json::{Value, json};

use super::Context;
use crate::object::text;

/// Sets the entries given for this ConfigMap, under its whole name or under its name without `config-`; the whole
/// name wins. Other entries stay.
pub fn merge(object: &mut Value, cx: &Context<'_>) -> Result<(), String> {
    if text(object, "/kind") != "ConfigMap" {
        return Ok(());
    }
    let config = &cx.resource.common().config;
    let name = text(object, "/metadata/name");
    let Some(entries) = config.get(name).or_else(|| config.get(short(name)?)) else { return Ok(()) };
    for (key, value) in entries {
        let data = &mut object["data"];
        if !(data.is_object() || data.is_null()) {
            return Err("data is no mapping".to_owned());
        }
        data[key] = json!(value);
    }
    Ok(())
}
