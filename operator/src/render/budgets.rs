//! `spec.podDisruptionBudgets`: how many pods may be away.

use serde_json::{Value, json};

use super::Context;
use crate::object::text;

/// Sets the one that is given of `minAvailable` and `maxUnavailable`, and takes the other away: both at once are refused.
pub fn replace(object: &mut Value, cx: &Context<'_>) -> Result<(), String> {
    if text(object, "/kind") != "PodDisruptionBudget" {
        return Ok(());
    }
    let name = text(object, "/metadata/name").to_owned();
    let budgets = cx.resource.common().pod_disruption_budgets.iter().enumerate();
    for (index, given) in budgets.filter(|(_, b)| b.name == name) {
        let (set, field, other) = match (&given.min_available, &given.max_unavailable) {
            // As in the Go operator, an override that says nothing ends them.
            (None, None) => return Ok(()),
            (Some(_), Some(_)) => {
                return Err(format!(
                    "spec.podDisruptionBudgets[{index}]: both minAvailable and maxUnavailable are set for PodDisruptionBudget {name}; remove one of them"
                ));
            }
            (Some(least), None) => (least, "minAvailable", "maxUnavailable"),
            (None, Some(most)) => (most, "maxUnavailable", "minAvailable"),
        };
        object["spec"][field] = json!(set);
        object["spec"].as_object_mut().and_then(|s| s.remove(other));
    }
    Ok(())
}
