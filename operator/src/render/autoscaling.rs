//! Workloads whose replicas somebody else sets, and HorizontalPodAutoscalers, which replicas go to instead.

use serde_json::{Value, json};

use crate::object::text;

/// Workloads that are scaled by an autoscaler: their own, or Kubernetes'. Replicas are never set on them.
const SCALED: [&str; 9] = [
    "webhook",
    "activator",
    "3scale-kourier-gateway",
    "eventing-webhook",
    "mt-broker-ingress",
    "mt-broker-filter",
    "kafka-broker-dispatcher",
    "kafka-source-dispatcher",
    "kafka-channel-dispatcher",
];

/// Whether the replicas of `workload` are an autoscaler's.
pub fn scaled(workload: &str) -> bool {
    SCALED.contains(&workload)
}

/// Whether `object` is a HorizontalPodAutoscaler.
pub fn is_autoscaler(object: &Value) -> bool {
    text(object, "/kind") == "HorizontalPodAutoscaler"
}

/// Raises the least number of replicas to `replicas`, and the greatest by as much. Nothing is ever lowered.
pub fn raise(autoscaler: &mut Value, replicas: i64) -> Result<(), String> {
    let spec = &mut autoscaler["spec"];
    let number = |field: &str| match &spec[field] {
        Value::Null => Ok(None),
        value => value.as_i64().map(Some).ok_or_else(|| format!("spec.{field} is no integer but {value}")),
    };
    let (least, greatest) = (number("minReplicas")?.unwrap_or_default(), number("maxReplicas")?);
    if least >= replicas {
        return Ok(());
    }
    spec["minReplicas"] = json!(replicas);
    if let Some(greatest) = greatest {
        spec["maxReplicas"] = json!(greatest.saturating_add(replicas.saturating_sub(least)));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_span_is_kept_and_nothing_is_lowered() {
        for (before, replicas, after) in
            [((1, 4), 2, (2, 5)), ((2, 5), 6, (6, 9)), ((3, 5), 2, (3, 5)), ((2, 2), 3, (3, 3)), ((1, 5), 0, (1, 5))]
        {
            let mut autoscaler = json!({"spec": {"minReplicas": before.0, "maxReplicas": before.1}});
            raise(&mut autoscaler, replicas).unwrap();
            assert_eq!(
                autoscaler["spec"],
                json!({"minReplicas": after.0, "maxReplicas": after.1}),
                "{before:?} at {replicas}"
            );
        }
        let mut bare = json!({"spec": {}});
        raise(&mut bare, 2).unwrap();
        assert_eq!(bare["spec"], json!({"minReplicas": 2}));
        assert!(raise(&mut json!({"spec": {"minReplicas": "one"}}), 2).is_err());
    }
}
