//! Update strategies of workloads. An API server sets `rollingUpdate` by default, and refuses it
//! for other strategies. Server-side apply can only remove fields that the operator owns, so the
//! operator claims the field before it changes the strategy. Pure.

use serde_json::{Value, json};

/// Fields with the strategy of Deployments, and of other workloads.
const FIELDS: [&str; 2] = ["strategy", "updateStrategy"];

/// `object` with the strategy that claims `rollingUpdate`, if its own strategy is another one.
pub fn claiming_rolling_update(object: &Value) -> Option<Value> {
    let is_other = |field: &&str| {
        let strategy = &object["spec"][field];
        let type_ = strategy["type"].as_str();
        type_.is_some_and(|type_| type_ != "RollingUpdate") && strategy.get("rollingUpdate").is_none()
    };
    let field = FIELDS.into_iter().find(is_other)?;
    let mut claiming = object.clone();
    claiming["spec"][field] = json!({"type": "RollingUpdate", "rollingUpdate": {}});
    Some(claiming)
}

/// `object` with the strategy of `desired`.
pub fn with_strategy_of(mut object: Value, desired: &Value) -> Value {
    for field in FIELDS {
        if let Some(strategy) = desired["spec"].get(field) {
            object["spec"][field] = strategy.clone();
        }
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_strategy_claims_rolling_update() {
        let claiming =
            |strategy: Value| claiming_rolling_update(&json!({"spec": {"strategy": strategy, "replicas": 1}}));
        assert_eq!(
            claiming(json!({"type": "Recreate"})),
            Some(json!({"spec": {"strategy": {"type": "RollingUpdate", "rollingUpdate": {}}, "replicas": 1}}))
        );
        assert_eq!(claiming(json!({"type": "RollingUpdate"})), None);
        assert_eq!(claiming(json!({"type": "Recreate", "rollingUpdate": {}})), None);
        assert_eq!(claiming(json!({})), None);
        let set = json!({"spec": {"updateStrategy": {"type": "OnDelete"}}});
        assert!(
            claiming_rolling_update(&set).is_some_and(|set| set["spec"]["updateStrategy"]["type"] == "RollingUpdate")
        );
    }
}
