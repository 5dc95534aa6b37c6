//! Defaults that the webhook sets. Only fields that the CustomResourceDefinition requires, with the
//! value that an omitted field has anyway: a given value never changes, so that GitOps tools see no
//! drift.

use serde_json::{Map, Value, json};

use crate::api::Component;

/// Event sources that `spec.source` must list.
pub const SOURCES: [&str; 6] = ["ceph", "github", "gitlab", "kafka", "rabbitmq", "redis"];

/// Whether `object` may lack required fields.
pub fn may_need_defaults(object: &Value) -> bool {
    ["source", "security"].iter().any(|field| object["spec"].get(field).is_some())
}

/// Sets missing required fields of `object`. Idempotent.
pub fn set_defaults(component: Component, object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    match component {
        Component::Serving => {
            if let Some(security) = spec.get_mut("security").and_then(Value::as_object_mut) {
                default_disabled(security, "securityGuard");
            }
        }
        Component::Eventing => {
            if let Some(source) = spec.get_mut("source").and_then(Value::as_object_mut) {
                SOURCES.iter().for_each(|name| default_disabled(source, name));
            }
        }
    }
}

/// Sets `enabled: false` in the block `name`, unless it is given.
fn default_disabled(block: &mut Map<String, Value>, name: &str) {
    let part = block.entry(name).or_insert_with(|| json!({}));
    if let Some(part) = part.as_object_mut() {
        part.entry("enabled").or_insert(json!(false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_fields_get_defaults_and_others_stay() {
        for (component, given, expected) in [
            (
                Component::Eventing,
                json!({"spec": {"source": {"kafka": {"enabled": true}, "redis": {}}, "version": "1.22"}}),
                json!({"spec": {"source": {"ceph": {"enabled": false}, "github": {"enabled": false}, "gitlab": {"enabled": false}, "kafka": {"enabled": true},
                    "rabbitmq": {"enabled": false}, "redis": {"enabled": false}}, "version": "1.22"}}),
            ),
            (
                Component::Serving,
                json!({"spec": {"security": {}}}),
                json!({"spec": {"security": {"securityGuard": {"enabled": false}}}}),
            ),
            (Component::Serving, json!({"spec": {"source": {}}}), json!({"spec": {"source": {}}})),
            (Component::Eventing, json!({"spec": {}}), json!({"spec": {}})),
            (Component::Eventing, json!({"spec": {"source": [1], "a": 1}}), json!({"spec": {"source": [1], "a": 1}})),
            (Component::Eventing, json!({"metadata": {}}), json!({"metadata": {}})),
        ] {
            let mut object = given;
            set_defaults(component, &mut object);
            assert_eq!(object, expected);
            set_defaults(component, &mut object);
            assert_eq!(object, expected);
        }
    }
}
