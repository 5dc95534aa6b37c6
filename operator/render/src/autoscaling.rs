//! Workloads whose replicas an autoscaler sets, and HorizontalPodAutoscalers, which get the
//! replicas instead.

use serde_json::{Value, json};

use super::error::TransformError;
use knative_operator_objects::text;

/// Workloads that an autoscaler scales: their own, or Kubernetes'. Replicas are never set on them.
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

/// Whether an autoscaler sets the replicas of `workload`.
pub fn is_autoscaled(workload: &str) -> bool {
    SCALED.contains(&workload)
}

/// Whether `object` is a HorizontalPodAutoscaler.
pub fn is_autoscaler(object: &Value) -> bool {
    text(object, "/kind") == "HorizontalPodAutoscaler"
}

/// Raises `minReplicas` to `replicas`, and `maxReplicas` by the same amount. Never lowers them.
pub fn raise(autoscaler: &mut Value, replicas: i64) -> Result<(), TransformError> {
    let spec = &mut autoscaler["spec"];
    let number = |field: &str| match &spec[field] {
        Value::Null => Ok(None),
        value => value
            .as_i64()
            .map(Some)
            .ok_or_else(|| TransformError::NotInteger { field: format!("spec.{field}"), value: value.to_string() }),
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
    fn span_is_kept_and_nothing_is_lowered() {
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
