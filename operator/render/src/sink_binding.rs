//! The selection mode of Eventing's SinkBinding webhook.

use knative_operator_shared::api::{CommonSpec, Knative};
use serde_json::{Value, json};

use super::context::Context;
use super::error::TransformError;
use super::pod::{containers, set_environment};
use knative_operator_objects::text;

const WEBHOOK: &str = "eventing-webhook";
const VARIABLE: &str = "SINK_BINDING_SELECTION_MODE";

/// Sets the mode in each container of the webhook: in the variable with that name, or in a new one.
/// Without a mode in the spec, a variable with `valueFrom` stays: Kubernetes refuses both.
pub fn set_selection_mode(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    let Knative::Eventing(eventing) = cx.resource else { return Ok(()) };
    if text(object, "/kind") != "Deployment" || text(object, "/metadata/name") != WEBHOOK {
        return Ok(());
    }
    let given = eventing.spec.sink_binding_selection_mode.as_deref().filter(|m| !m.is_empty());
    let mode = given.or_else(|| overridden(&eventing.spec.common)).unwrap_or("exclusion").to_owned();
    for container in containers(object) {
        if given.is_none() && has_source(container) {
            continue;
        }
        set_environment(container, &[json!({"name": VARIABLE, "value": mode})]);
    }
    Ok(())
}

/// Whether the variable of `container` has `valueFrom`.
fn has_source(container: &Value) -> bool {
    let mut variables = container["env"].as_array().into_iter().flatten();
    variables.any(|variable| text(variable, "/name") == VARIABLE && !variable["valueFrom"].is_null())
}

/// The mode from an override of the webhook's environment. Only here, `workloads` come first.
fn overridden(common: &CommonSpec) -> Option<&str> {
    let webhooks = common.workloads.iter().chain(&common.deployments).filter(|w| w.name == WEBHOOK);
    let environments = webhooks.flat_map(|w| &w.env).filter(|e| e.container == WEBHOOK);
    let variables = environments.flat_map(|e| &e.env_vars).filter(|v| text(v, "/name") == VARIABLE);
    variables.map(|v| text(v, "/value")).find(|mode| !mode.is_empty())
}

#[cfg(test)]
mod tests {
    use knative_operator_objects::Kinds;
    use knative_operator_rules as rules;
    use knative_operator_shared::api::Component;

    use super::super::context::Settings;
    use super::*;

    /// The environment of the webhook, in which the variable was `before`.
    fn environment(spec: &Value, before: &Value) -> Value {
        let resource = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": spec});
        let resource = rules::parse(Component::Eventing, &resource).unwrap();
        let (version, kinds, settings) =
            ("1.22.2".parse().unwrap(), Kinds::defined([].into_iter()), Settings::default());
        let cx = Context { resource: &resource, version: &version, namespace: "b", kinds: &kinds, settings: &settings };
        let mut object = json!({"kind": "Deployment", "metadata": {"name": WEBHOOK}, "spec": {"template": {"spec": {"containers": [{"env": [before]}]}}}});
        set_selection_mode(&mut object, &cx).unwrap();
        object["spec"]["template"]["spec"]["containers"][0]["env"].take()
    }

    #[test]
    fn variable_has_a_value_or_a_source() {
        let from = json!({"name": VARIABLE, "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}});
        assert_eq!(environment(&json!({}), &from), json!([from]));
        let mode = json!({"sinkBindingSelectionMode": "inclusion"});
        assert_eq!(environment(&mode, &from), json!([{"name": VARIABLE, "value": "inclusion"}]));
        let empty = json!({"name": VARIABLE, "value": ""});
        assert_eq!(environment(&json!({}), &empty), json!([{"name": VARIABLE, "value": "exclusion"}]));
    }
}
