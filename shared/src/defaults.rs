//! What is filled in before a resource is stored. Only what the CustomResourceDefinition requires beside what was given, with the meaning
//! that leaving it out has anyway: nothing that somebody wrote is ever changed or removed, so that no GitOps tool sees a drift.

use serde_json::{Map, Value, json};

use crate::api::Component;

/// The event sources that `spec.source` has to list.
pub const SOURCES: [&str; 6] = ["ceph", "github", "gitlab", "kafka", "rabbitmq", "redis"];

/// Whether anything of `object` may have to be filled in.
pub fn may_lack(object: &Value) -> bool {
    ["source", "security"].iter().any(|field| object["spec"].get(field).is_some())
}

/// Fills in what is left out of `object`. Doing it twice changes nothing more.
pub fn fill_in(component: Component, object: &mut Value) {
    let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) else { return };
    match component {
        Component::Serving => {
            if let Some(security) = spec.get_mut("security").and_then(Value::as_object_mut) {
                enabled(security, "securityGuard");
            }
        }
        Component::Eventing => {
            if let Some(source) = spec.get_mut("source").and_then(Value::as_object_mut) {
                SOURCES.iter().for_each(|name| enabled(source, name));
            }
        }
    }
}

/// `name` says whether it is enabled: it isn't, if nobody says so.
fn enabled(block: &mut Map<String, Value>, name: &str) {
    let part = block.entry(name).or_insert_with(|| json!({}));
    if let Some(part) = part.as_object_mut() {
        part.entry("enabled").or_insert(json!(false));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_filled_in_and_nothing_else() {
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
            fill_in(component, &mut object);
            assert_eq!(object, expected);
            fill_in(component, &mut object);
            assert_eq!(object, expected);
        }
    }
}
