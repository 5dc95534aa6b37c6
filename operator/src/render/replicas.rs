//! Replicas of a workload that an autoscaler owns are the autoscaler's.

use std::collections::HashSet;

use serde_json::Value;

use crate::object::text;

/// Leaves `spec.replicas` out of the workloads that a HorizontalPodAutoscaler of the plan scales.
pub fn leave_to_autoscalers(objects: &mut [Value]) {
    let target = |o: &Value| (text(o, "/spec/scaleTargetRef/kind").to_owned(), text(o, "/spec/scaleTargetRef/name").to_owned());
    let scaled: HashSet<_> = objects.iter().filter(|o| text(o, "/kind") == "HorizontalPodAutoscaler").map(target).collect();
    for object in objects {
        let own = (text(object, "/kind").to_owned(), text(object, "/metadata/name").to_owned());
        if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut).filter(|_| scaled.contains(&own)) {
            spec.remove("replicas");
        }
    }
}
