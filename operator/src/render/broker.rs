//! Eventing's default broker class.

use knative_operator_shared::api::Knative;
use serde_json::{Value, json};

use super::context::Context;
use crate::object::text;
use knative_operator_shared::yaml;

const KEY: &str = "default-br-config";

/// Sets the cluster's default broker class, unless `spec.config` sets it.
pub fn default_class(object: &mut Value, cx: &Context<'_>) -> Result<(), String> {
    let Knative::Eventing(eventing) = cx.resource else { return Ok(()) };
    if text(object, "/kind") != "ConfigMap" || text(object, "/metadata/name") != "config-br-defaults" {
        return Ok(());
    }
    let config = &eventing.spec.common.config;
    let given =
        config.get("br-defaults").or_else(|| config.get("config-br-defaults")).and_then(|entries| entries.get(KEY));
    if given.is_some_and(|text| text.contains("brokerClass:")) {
        return Ok(());
    }
    let written = object["data"][KEY].as_str().ok_or_else(|| format!("data has no {KEY}"))?;
    let mut defaults: Value = yaml::parse(written).map_err(|e| format!("data.{KEY}: {e}"))?;
    if !defaults["clusterDefault"].is_object() {
        defaults["clusterDefault"] = json!({});
    }
    defaults["clusterDefault"]["brokerClass"] =
        json!(eventing.spec.default_broker_class.as_deref().unwrap_or("MTChannelBasedBroker"));
    object["data"][KEY] = json!(yaml::write(&defaults).map_err(|e| format!("data.{KEY}: {e}"))?);
    Ok(())
}
