//! Replicas of a workload that an autoscaler owns are the autoscaler's.

use std::collections::HashSet;

use serde_json::Value;

use crate::object::{Shared, text};

/// Leaves `spec.replicas` out of the workloads that a HorizontalPodAutoscaler of the plan scales.
pub fn leave_to_autoscalers(mut objects: Vec<Shared>) -> Vec<Shared> {
    let target = |o: &Shared| (text(o, "/spec/scaleTargetRef/kind").to_owned(), text(o, "/spec/scaleTargetRef/name").to_owned());
    let scaled: HashSet<_> = objects.iter().filter(|o| text(o, "/kind") == "HorizontalPodAutoscaler").map(target).collect();
    for object in &mut objects {
        let own = (text(object, "/kind").to_owned(), text(object, "/metadata/name").to_owned());
        if scaled.contains(&own) && object.pointer("/spec/replicas").is_some() {
            let mut changed = Value::clone(object);
            changed["spec"].as_object_mut().and_then(|spec| spec.remove("replicas"));
            *object = Shared::new(changed);
        }
    }
    objects
}
