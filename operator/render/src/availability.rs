//! `spec.high-availability`: the minimum number of replicas.

use serde_json::{Value, json};

use super::autoscaling::{is_autoscaled, is_autoscaler, raise};
use super::context::Context;
use super::error::TransformError;
use knative_operator_objects::text;

/// The Deployment that must have one replica.
const SINGLETON: &str = "pingsource-mt-adapter";

/// Sets the replicas of Deployments, and raises those of autoscalers. An override of the workload's
/// replicas wins.
pub fn replicas(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    let common = cx.resource.common();
    let Some(replicas) = common.high_availability.as_ref().and_then(|h| h.replicas) else { return Ok(()) };
    let name = text(object, "/metadata/name");
    if common.overrides().any(|(_, workload)| workload.name == name && workload.replicas.is_some()) {
        return Ok(());
    }
    if text(object, "/kind") == "Deployment" && name != SINGLETON && !is_autoscaled(name) {
        object["spec"]["replicas"] = json!(replicas);
    } else if is_autoscaler(object) {
        raise(object, replicas)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use knative_operator_objects::Kinds;
    use knative_operator_rules as rules;
    use knative_operator_shared::api::Component;

    use super::super::context::Settings;
    use super::*;

    /// The replicas of an object of `kind` with `name`, which has `before`.
    fn after(spec: &Value, kind: &str, name: &str, before: &Value) -> Value {
        let resource = json!({"metadata": {"name": "a", "namespace": "b"}, "spec": spec});
        let resource = rules::parse(Component::Eventing, &resource).unwrap();
        let (version, kinds, settings) =
            ("1.22.2".parse().unwrap(), Kinds::defined([].into_iter()), Settings::default());
        let cx = Context { resource: &resource, version: &version, namespace: "b", kinds: &kinds, settings: &settings };
        let mut object = json!({"kind": kind, "metadata": {"name": name}, "spec": before});
        replicas(&mut object, &cx).unwrap();
        object["spec"].take()
    }

    #[test]
    fn deployments_have_the_replicas_but_for_overrides_singletons_and_autoscaled_ones() {
        let (spec, one) = (json!({"high-availability": {"replicas": 3}}), json!({"replicas": 1}));
        let of = |kind: &str, name: &str| after(&spec, kind, name, &one);
        assert_eq!(of("Deployment", "eventing-controller"), json!({"replicas": 3}));
        assert_eq!(after(&json!({}), "Deployment", "eventing-controller", &one), one);
        // Other kinds, the one that must be alone, and one that its autoscaler scales.
        for (kind, name) in
            [("StatefulSet", "eventing-controller"), ("Deployment", SINGLETON), ("Deployment", "eventing-webhook")]
        {
            assert_eq!(of(kind, name), one, "{kind} {name}");
        }
        let limits = json!({"minReplicas": 1, "maxReplicas": 2});
        let raised = after(&spec, "HorizontalPodAutoscaler", "eventing-webhook", &limits);
        assert_eq!(raised["minReplicas"], 3);
        // An override of its replicas wins, and one of something else does not.
        let with = |workload: Value| json!({"high-availability": {"replicas": 3}, "workloads": [workload]});
        let own = with(json!({"name": "eventing-controller", "replicas": 2}));
        assert_eq!(after(&own, "Deployment", "eventing-controller", &one), one);
        assert_eq!(after(&own, "Deployment", "imc-dispatcher", &one), json!({"replicas": 3}));
        let other = with(json!({"name": "eventing-controller", "labels": {"a": "b"}}));
        assert_eq!(after(&other, "Deployment", "eventing-controller", &one), json!({"replicas": 3}));
    }
}
