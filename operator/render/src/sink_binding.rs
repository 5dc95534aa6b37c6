//! The selection mode of Eventing's SinkBinding webhook.

use knative_operator_shared::api::{CommonSpec, Knative};
use serde_json::{Value, json};

use super::context::Context;
use super::error::TransformError;
use super::pod::{containers, set_environment};
use knative_operator_objects::text;

const WEBHOOK: &str = "eventing-webhook";
const VARIABLE: &str = "SINK_BINDING_SELECTION_MODE";

/// Sets the mode in each container of the webhook: in the first variable with that name, or in a
/// new one.
pub fn set_selection_mode(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    let Knative::Eventing(eventing) = cx.resource else { return Ok(()) };
    if text(object, "/kind") != "Deployment" || text(object, "/metadata/name") != WEBHOOK {
        return Ok(());
    }
    let given = eventing.spec.sink_binding_selection_mode.as_deref().filter(|m| !m.is_empty());
    let mode = given.or_else(|| overridden(&eventing.spec.common)).unwrap_or("exclusion").to_owned();
    for container in containers(object) {
        set_environment(container, &[json!({"name": VARIABLE, "value": mode})]);
    }
    Ok(())
}

/// The mode from an override of the webhook's environment. Only here, `workloads` come first.
fn overridden(common: &CommonSpec) -> Option<&str> {
    let webhooks = common.workloads.iter().chain(&common.deployments).filter(|w| w.name == WEBHOOK);
    let environments = webhooks.flat_map(|w| &w.env).filter(|e| e.container == WEBHOOK);
    let variables = environments.flat_map(|e| &e.env_vars).filter(|v| text(v, "/name") == VARIABLE);
    variables.map(|v| text(v, "/value")).find(|mode| !mode.is_empty())
}
