//! `spec.workloads` and its deprecated name `spec.deployments`: overrides of workloads, in order,
//! after the defaults for all workloads (the name `*`).

use knative_operator_rules::autoscaler_of;
use knative_operator_shared::api::WorkloadOverride;
use serde_json::{Value, json};

use super::autoscaling::{is_autoscaled, is_autoscaler, raise};
use super::context::Context;
use super::error::TransformError;
use super::pod::{add_metadata, container, containers, is_workload, set_environment};
use super::{probes, resources};
use knative_operator_objects::text;

/// Applies the defaults for all workloads: what describes where and with what Pods run. Transforms
/// that follow set the fields of single workloads, which win.
pub fn apply_defaults(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    if !is_workload(object) {
        return Ok(());
    }
    for (_, given) in cx.resource.common().overrides().filter(|(_, given)| given.is_for_all()) {
        add_labels_and_annotations(object, given);
        set_scheduling(&mut object["spec"]["template"]["spec"], given);
        let (all, named): (Vec<_>, Vec<_>) = given.resources.iter().partition(|given| given.is_for_all());
        for given in all {
            containers(object).for_each(|container| resources::set(container, given));
        }
        for given in named {
            container(object, &given.container).into_iter().for_each(|container| resources::set(container, given));
        }
    }
    Ok(())
}

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
    add_labels_and_annotations(object, given);
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

/// Adds labels and annotations to the workload and its Pods.
fn add_labels_and_annotations(object: &mut Value, given: &WorkloadOverride) {
    for (field, entries) in [("labels", &given.labels), ("annotations", &given.annotations)] {
        add_metadata(object, field, entries);
        add_metadata(&mut object["spec"]["template"], field, entries);
    }
}

/// Sets where Pods run, by fields that are replaced as a whole.
fn set_scheduling(spec: &mut Value, given: &WorkloadOverride) {
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
}

/// Sets the fields of the Pod spec.
fn override_pod_spec(spec: &mut Value, given: &WorkloadOverride) {
    set_scheduling(spec, given);
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

#[cfg(test)]
mod tests {
    use knative_operator_objects::Kinds;
    use knative_operator_rules::parse;
    use knative_operator_shared::api::Component;

    use super::*;
    use crate::context::Settings;

    /// `object` after both transforms, and the deprecated one between them.
    fn rendered(spec: &Value, mut object: Value) -> Value {
        let resource = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": spec});
        let resource = parse(Component::Serving, &resource).unwrap();
        let (version, kinds, settings) = ("1.22.0".parse().unwrap(), Kinds::default(), Settings::default());
        let cx = Context { resource: &resource, version: &version, namespace: "n", kinds: &kinds, settings: &settings };
        let transforms: [crate::Transform; 3] = [apply_defaults, resources::set_by_container, apply_overrides];
        for transform in transforms {
            transform(&mut object, &cx).unwrap();
        }
        object
    }

    fn workload(kind: &str, name: &str) -> Value {
        let containers = json!([{"name": name, "resources": {"requests": {"cpu": "1"}}}, {"name": "proxy"}]);
        json!({"kind": kind, "metadata": {"name": name}, "spec": {"template": {"spec": {"containers": containers}}}})
    }

    #[test]
    fn defaults_reach_all_workloads_and_nothing_else() {
        let spec = json!({"workloads": [{"name": "*", "labels": {"team": "a"}, "nodeSelector": {"pool": "infra"},
            "tolerations": [{"operator": "Exists"}], "affinity": {"nodeAffinity": {}},
            "topologySpreadConstraints": [{"maxSkew": 1}], "annotations": {"note": "b"},
            "resources": [{"container": "proxy", "limits": {"cpu": "2"}}, {"container": "*", "limits": {"cpu": "1", "memory": "1Gi"}}]}]});
        for kind in ["Deployment", "StatefulSet", "DaemonSet", "Job"] {
            let found = rendered(&spec, workload(kind, "some"));
            let template = &found["spec"]["template"];
            for metadata in [&found["metadata"], &template["metadata"]] {
                assert_eq!((&metadata["labels"]["team"], &metadata["annotations"]["note"]), (&json!("a"), &json!("b")));
            }
            let pods = &template["spec"];
            assert_eq!(pods["nodeSelector"], json!({"pool": "infra"}), "{kind}");
            assert_eq!(pods["tolerations"], json!([{"operator": "Exists"}]));
            assert_eq!(pods["affinity"], json!({"nodeAffinity": {}}));
            assert_eq!(pods["topologySpreadConstraints"], json!([{"maxSkew": 1}]));
            let resources = [&pods["containers"][0]["resources"], &pods["containers"][1]["resources"]];
            // The one with a name wins, in either order.
            let expected = [
                json!({"requests": {"cpu": "1"}, "limits": {"cpu": "1", "memory": "1Gi"}}),
                json!({"limits": {"cpu": "2", "memory": "1Gi"}}),
            ];
            assert_eq!(resources, expected.each_ref());
        }
        let service = json!({"kind": "Service", "metadata": {"name": "some"}, "spec": {}});
        assert_eq!(rendered(&spec, service.clone()), service);
    }

    #[test]
    fn entry_of_a_workload_wins_field_by_field() {
        let own = json!({"name": "own", "labels": {"team": "b"}, "nodeSelector": {"pool": "web"},
            "resources": [{"container": "own", "limits": {"cpu": "3"}}]});
        let all = json!({"name": "*", "labels": {"team": "a", "stage": "prod"}, "nodeSelector": {"pool": "infra", "disk": "ssd"},
            "tolerations": [{"operator": "Exists"}], "resources": [{"container": "*", "limits": {"cpu": "1", "memory": "1Gi"}}]});
        for lists in [
            json!({"workloads": [own, all]}),
            json!({"workloads": [all, own]}),
            json!({"deployments": [own], "workloads": [all]}),
        ] {
            let found = rendered(&lists, workload("Deployment", "own"));
            assert_eq!(found["metadata"]["labels"], json!({"team": "b", "stage": "prod"}), "{lists}");
            let pods = &found["spec"]["template"]["spec"];
            assert_eq!(pods["nodeSelector"], json!({"pool": "web"}));
            assert_eq!(pods["tolerations"], json!([{"operator": "Exists"}]));
            assert_eq!(pods["containers"][0]["resources"]["limits"], json!({"cpu": "3", "memory": "1Gi"}));
            assert_eq!(rendered(&lists, workload("Deployment", "other"))["metadata"]["labels"]["team"], "a");
        }
        // So does the deprecated list of resources by container.
        let spec = json!({"workloads": [all], "resources": [{"container": "own", "limits": {"cpu": "4"}}]});
        let found = rendered(&spec, workload("Deployment", "own"));
        assert_eq!(found["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"], "4");
    }

    #[test]
    fn what_differs_between_workloads_has_no_default() {
        let spec = json!({"workloads": [{"name": "*", "replicas": 3, "hostNetwork": true,
            "env": [{"container": "own", "envVars": [{"name": "A", "value": "b"}]}],
            "readinessProbes": [{"container": "own", "periodSeconds": 1}], "livenessProbes": [{"container": "own"}]}]});
        let released = workload("Deployment", "own");
        assert_eq!(rendered(&spec, released.clone()), released);
    }
}
