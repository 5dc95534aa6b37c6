//! `spec.workloads`, and `spec.deployments`, its deprecated name: overrides of workloads, one after the other.

use knative_operator_shared::api::WorkloadOverride;
use knative_operator_shared::rules::autoscaler_of;
use serde_json::{Value, json};

use super::Context;
use super::autoscaling::{is_autoscaler, raise, scaled};
use super::pod::{add_metadata, container, set_environment};
use super::{probes, resources};
use crate::object::text;

/// Overrides what is given of the workloads with the given names. Replicas of a workload that is scaled go to its autoscaler.
pub fn replace(object: &mut Value, cx: &Context<'_>) -> Result<(), String> {
    for (path, given) in cx.resource.common().overrides() {
        if matches(object, given) {
            workload(object, given);
        } else if let Some(replicas) = given.replicas.filter(|_| is_autoscaler(object))
            && text(object, "/metadata/name") == autoscaler_of(&given.name)
        {
            raise(object, replicas).map_err(|why| format!("{path}.replicas: {why}"))?;
        }
    }
    Ok(())
}

/// Whether `given` is about `object`: Jobs go by the beginning of their name, which is the same for every version.
pub fn matches(object: &Value, given: &WorkloadOverride) -> bool {
    let name = match text(object, "/kind") {
        "Deployment" | "StatefulSet" => text(object, "/metadata/name"),
        "Job" => text(object, "/metadata/generateName"),
        _ => return false,
    };
    !name.is_empty() && name == given.name
}

/// Whether an override can be about `object` at all.
pub fn is_overridable(object: &Value) -> bool {
    matches!(text(object, "/kind"), "Deployment" | "StatefulSet")
        || text(object, "/kind") == "Job" && !text(object, "/metadata/generateName").is_empty()
}

fn workload(object: &mut Value, given: &WorkloadOverride) {
    if let Some(replicas) = given.replicas.filter(|_| text(object, "/kind") != "Job" && !scaled(&given.name)) {
        object["spec"]["replicas"] = json!(replicas);
    }
    for (field, entries) in [("labels", &given.labels), ("annotations", &given.annotations)] {
        add_metadata(object, field, entries);
        add_metadata(&mut object["spec"]["template"], field, entries);
    }
    pods(&mut object["spec"]["template"]["spec"], given);
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

/// What is replaced as a whole.
fn pods(spec: &mut Value, given: &WorkloadOverride) {
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
            // Without this, pods on the node's network don't find Services by name.
            spec["dnsPolicy"] = json!("ClusterFirstWithHostNet");
        }
        Some(false) => {
            spec.as_object_mut().and_then(|s| s.remove("hostNetwork"));
        }
        None => {}
    }
}
