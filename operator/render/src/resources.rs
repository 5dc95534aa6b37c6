//! Resource requirements, and `spec.resources`, which sets them by container name (deprecated).

use knative_operator_shared::api::ContainerResources;
use serde_json::Value;

use super::context::Context;
use super::error::TransformError;
use super::pod::containers;
use knative_operator_objects::text;

/// Sets the resources of a Deployment's containers, unless an override of that Deployment does.
pub fn set_by_container(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    let common = cx.resource.common();
    if common.resources.is_empty() || text(object, "/kind") != "Deployment" {
        return Ok(());
    }
    let name = text(object, "/metadata/name");
    if common.overrides().any(|(_, workload)| workload.name == name && !workload.resources.is_empty()) {
        return Ok(());
    }
    for container in containers(object) {
        let given = common.resources.iter().find(|r| r.container == text(container, "/name"));
        given.into_iter().for_each(|given| set(container, given));
    }
    Ok(())
}

/// Sets the given requirements of `container`.
pub fn set(container: &mut Value, given: &ContainerResources) {
    for (field, entries) in [("limits", &given.limits), ("requests", &given.requests)] {
        for (name, quantity) in entries {
            container["resources"][field][name] = quantity.clone();
        }
    }
}
