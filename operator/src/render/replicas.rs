//! Replicas of a workload that an autoscaler owns are the autoscaler's.

use std::collections::HashSet;

use serde_json::Value;

use crate::object::text;
use crate::packed::Packed;

/// Leaves `spec.replicas` out of the workloads that a HorizontalPodAutoscaler of the plan scales.
pub fn leave_to_autoscalers(mut objects: Vec<Packed>) -> Vec<Packed> {
    let target =
        |o: Value| (text(&o, "/spec/scaleTargetRef/kind").to_owned(), text(&o, "/spec/scaleTargetRef/name").to_owned());
    let scaled: HashSet<_> =
        objects.iter().filter(|o| o.id().kind == "HorizontalPodAutoscaler").map(|o| target(o.open())).collect();
    for object in &mut objects {
        if scaled.contains(&(object.id().kind.clone(), object.id().name.clone())) {
            let mut changed = object.open();
            if changed["spec"].as_object_mut().and_then(|spec| spec.remove("replicas")).is_some() {
                *object = Packed::new(&changed);
            }
        }
    }
    objects
}
