//! Replicas of workloads that an autoscaler owns.

use std::collections::HashSet;

use serde_json::Value;

use knative_operator_objects::CompactObject;
use knative_operator_objects::text;

/// Removes `spec.replicas` from workloads that a HorizontalPodAutoscaler of the plan scales.
pub fn leave_to_autoscalers(mut objects: Vec<CompactObject>) -> Vec<CompactObject> {
    let target =
        |o: Value| (text(&o, "/spec/scaleTargetRef/kind").to_owned(), text(&o, "/spec/scaleTargetRef/name").to_owned());
    let scaled: HashSet<_> =
        objects.iter().filter(|o| o.id().kind == "HorizontalPodAutoscaler").map(|o| target(o.parse())).collect();
    for object in &mut objects {
        if scaled.contains(&(object.id().kind.clone(), object.id().name.clone())) {
            let mut changed = object.parse();
            if changed["spec"].as_object_mut().and_then(|spec| spec.remove("replicas")).is_some() {
                *object = CompactObject::new(&changed);
            }
        }
    }
    objects
}
