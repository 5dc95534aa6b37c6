//! `spec.workloads` and its deprecated name `spec.deployments`: overrides of workloads, in order.

use knative_operator_rules::autoscaler_of;
use knative_operator_shared::api::WorkloadOverride;
use serde_json::{Value, json};

use super::autoscaling::{is_autoscaled, is_autoscaler, raise};
use super::context::Context;
use super::error::TransformError;
use super::pod::{add_metadata, container, set_environment};
use super::{probes, resources};
use knative_operator_objects::text;

/// Applies the overrides of the workload with this name. Replicas of an autoscaled workload go to
/// its autoscaler.
pub fn apply_overrides(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    for (path, given) in cx.resource.common().overrides() {
        if matches(object, given) {
            override_workload(object, given);
        } else if let Some(replicas) = given.replicas.filter(|_| is_autoscaler(object))
            && text(object, "/metadata/name") == autoscaler_of(&given.name)
        {
            raise(object, replicas).map_err(|why| TransformError::field(format!("{path}.replicas"), &why))?;
        }
    }
    Ok(())
}

/// Whether `given` overrides `object`. Jobs match by their `generateName`, which is the same for
/// every version.
pub fn matches(object: &Value, given: &WorkloadOverride) -> bool {
    let name = match text(object, "/kind") {
        "Deployment" | "StatefulSet" => text(object, "/metadata/name"),
        "Job" => text(object, "/metadata/generateName"),
        _ => return false,
    };
    !name.is_empty() && name == given.name
}

/// Whether overrides can apply to `object`.
pub fn is_overridable(object: &Value) -> bool {
    matches!(text(object, "/kind"), "Deployment" | "StatefulSet")
        || text(object, "/kind") == "Job" && !text(object, "/metadata/generateName").is_empty()
}

fn override_workload(object: &mut Value, given: &WorkloadOverride) {
    if let Some(replicas) = given.replicas.filter(|_| text(object, "/kind") != "Job" && !is_autoscaled(&given.name)) {
        object["spec"]["replicas"] = json!(replicas);
    }
    for (field, entries) in [("labels", &given.labels), ("annotations", &given.annotations)] {
        add_metadata(object, field, entries);
        add_metadata(&mut object["spec"]["template"], field, entries);
    }
    override_pod_spec(&mut object["spec"]["template"]["spec"], given);
    for given in &given.resources {
        container(object, &given.container).into_iter().for_each(|c| resources::set(c, given));
    }
    for given in given.env.iter().filter(|e| !e.env_vars.is_empty()) {
        container(object, &given.container).into_iter().for_each(|c| set_environment(c, &given.env_vars));
    }
    for (field, list) in [("readinessProbe", &given.readiness_probes), ("livenessProbe", &given.liveness_probes)] {
        for given in list {
            container(object, &given.container).into_iter().for_each(|c| probes::set(c, field, given));
        }
    }
}

/// Sets the fields of the Pod spec that are replaced as a whole.
fn override_pod_spec(spec: &mut Value, given: &WorkloadOverride) {
    if !given.node_selector.is_empty() {
        spec["nodeSelector"] = json!(given.node_selector);
    }
    for (field, list) in
        [("topologySpreadConstraints", &given.topology_spread_constraints), ("tolerations", &given.tolerations)]
    {
        if !list.is_empty() {
            spec[field] = json!(list);
        }
    }
    if let Some(affinity) = &given.affinity {
        spec["affinity"] = affinity.clone();
    }
    match given.host_network {
        Some(true) => {
            spec["hostNetwork"] = json!(true);
            // Otherwise Pods in the host network don't resolve Services.
            spec["dnsPolicy"] = json!("ClusterFirstWithHostNet");
        }
        Some(false) => {
            spec.as_object_mut().and_then(|s| s.remove("hostNetwork"));
        }
        None => {}
    }
}
