//! Eventing's default broker class.

use knative_operator_shared::api::Knative;
use serde_json::{Value, json};

use super::context::Context;
use super::error::TransformError;
use knative_operator_objects::text;
use knative_operator_shared::yaml;

const KEY: &str = "default-br-config";

/// Sets the cluster's default broker class, unless `spec.config` sets it.
pub fn default_class(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
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
    let written = object["data"][KEY].as_str().ok_or(TransformError::NoKey(KEY))?;
    let field = format!("data.{KEY}");
    let mut defaults: Value = yaml::parse(written).map_err(|e| TransformError::field(&field, &e))?;
    if !(defaults.is_object() || defaults.is_null()) {
        return Err(TransformError::NotMapping(field));
    }
    if !defaults["clusterDefault"].is_object() {
        defaults["clusterDefault"] = json!({});
    }
    let class = eventing.spec.default_broker_class.as_deref().filter(|class| !class.is_empty());
    defaults["clusterDefault"]["brokerClass"] = json!(class.unwrap_or("MTChannelBasedBroker"));
    object["data"][KEY] = json!(yaml::write(&defaults).map_err(|e| TransformError::field(&field, &e))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use knative_operator_rules as rules;
    use knative_operator_shared::api::Component;

    use super::*;
    use crate::Settings;
    use knative_operator_objects::Kinds;

    fn class_of(spec: &Value) -> Value {
        let map = rendered(spec, "clusterDefault: {}").unwrap();
        let defaults: Value = yaml::parse(map["data"][KEY].as_str().unwrap()).unwrap();
        defaults["clusterDefault"]["brokerClass"].clone()
    }

    /// The ConfigMap with `defaults`.
    fn rendered(spec: &Value, defaults: &str) -> Result<Value, TransformError> {
        let resource = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": spec});
        let resource = rules::parse(Component::Eventing, &resource).unwrap();
        let (version, settings) = ("1.22.1".parse().unwrap(), Settings { kubernetes_min_version: None });
        let kinds = Kinds::defined([].into_iter());
        let context =
            Context { resource: &resource, version: &version, namespace: "b", kinds: &kinds, settings: &settings };
        let mut map = json!({"kind": "ConfigMap", "metadata": {"name": "config-br-defaults"}, "data": {KEY: defaults}});
        default_class(&mut map, &context)?;
        Ok(map)
    }

    #[test]
    fn defaults_are_a_mapping() {
        for text in ["text", "[1]", "true"] {
            let error = rendered(&json!({}), text).unwrap_err();
            assert_eq!(error, TransformError::NotMapping(format!("data.{KEY}")), "{text}");
        }
        assert!(rendered(&json!({}), "").is_ok_and(|map| map["data"][KEY].as_str().is_some()));
    }

    #[test]
    fn empty_class_is_the_default() {
        assert_eq!(class_of(&json!({"defaultBrokerClass": "Kafka"})), "Kafka");
        for spec in [json!({}), json!({"defaultBrokerClass": ""})] {
            assert_eq!(class_of(&spec), "MTChannelBasedBroker");
        }
    }
}
