//! `spec.podDisruptionBudgets`: overrides of PodDisruptionBudgets.

use serde_json::{Value, json};

use super::context::Context;
use super::error::TransformError;
use knative_operator_objects::text;

/// Sets `minAvailable` or `maxUnavailable`, whichever is given, and removes the other: Kubernetes
/// refuses both at once.
pub fn replace(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    if text(object, "/kind") != "PodDisruptionBudget" {
        return Ok(());
    }
    let name = text(object, "/metadata/name").to_owned();
    let budgets = cx.resource.common().pod_disruption_budgets.iter().enumerate();
    for (index, given) in budgets.filter(|(_, b)| b.name == name) {
        let (set, field, other) = match (&given.min_available, &given.max_unavailable) {
            // As in the Go operator, an override without values ends the list.
            (None, None) => return Ok(()),
            (Some(_), Some(_)) => {
                let why = format!(
                    "both minAvailable and maxUnavailable are set for PodDisruptionBudget {name}; remove one of them"
                );
                return Err(TransformError::field(format!("spec.podDisruptionBudgets[{index}]"), &why));
            }
            (Some(least), None) => (least, "minAvailable", "maxUnavailable"),
            (None, Some(most)) => (most, "maxUnavailable", "minAvailable"),
        };
        object["spec"][field] = json!(set);
        object["spec"].as_object_mut().and_then(|s| s.remove(other));
    }
    Ok(())
}
