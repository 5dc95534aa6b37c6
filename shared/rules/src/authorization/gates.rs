//! Whether a write of a fleet changes what its gates measure. The operator sends their requests and
//! runs their Jobs with its own rights on the clusters.

use serde_json::Value;

/// Whether a fleet with gates, before or after the write, asks other clusters, or something else,
/// with the spec `new` than with `old`. Without gates, too: they bind who may not customize.
pub fn are_changed(old: &Value, new: &Value) -> bool {
    let (before, after) = (stages(old), stages(new));
    let is_changed = after != before || new["placement"] != old["placement"];
    before.iter().chain(&after).any(|(_, _, gates)| !gates.is_null()) && is_changed
}

/// Name, selectors and gates of each stage. A cluster belongs to the first stage that selects it,
/// and Jobs get the name.
fn stages(spec: &Value) -> Vec<(Value, [Value; 2], Value)> {
    let has_none = |gates: &Value| gates.is_null() || gates.as_array().is_some_and(Vec::is_empty);
    let gates = |gates: &Value| if has_none(gates) { Value::Null } else { gates.clone() };
    let stages = spec["rollout"]["stages"].as_array().into_iter().flatten();
    let selectors = |stage: &Value| ["clusterSelector", "propertySelector"].map(|field| stage[field].clone());
    stages.map(|stage| (stage["name"].clone(), selectors(stage), gates(&stage["gates"]))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn gates_need_the_permission_to_customize_the_fleet() {
        let gates = json!([{"name": "g", "http": {}}]);
        let fleet = |stages: Value| json!({"placement": {"clusterSelector": {}}, "rollout": {"stages": stages}});
        let same = fleet(json!([{"name": "a", "gates": gates}]));
        let none = fleet(json!([{"name": "a", "gates": []}]));
        let mut elsewhere = same.clone();
        elsewhere["placement"]["namespaces"] = json!(["other"]);
        for (new, old, expected) in [
            (&same, &Value::Null, true),
            (&same, &none, true),
            (&none, &same, true),
            (&same, &same, false),
            (&none, &none, false),
            (&none, &Value::Null, false),
            (&elsewhere, &same, true),
            (&fleet(json!([{"name": "a", "gates": [{"name": "g", "http": {"x": 1}}]}])), &same, true),
            (&fleet(json!([{"name": "a", "clusterSelector": {}, "gates": gates}])), &same, true),
            (&fleet(json!([{"name": "a", "propertySelector": {}, "gates": gates}])), &same, true),
            (&fleet(json!([{"name": "b", "gates": gates}])), &same, true),
            // Its clusters were those of an earlier stage.
            (&same, &fleet(json!([{"name": "p", "clusterSelector": {}}, {"name": "a", "gates": gates}])), true),
        ] {
            assert_eq!(are_changed(old, new), expected, "{old} to {new}");
        }
        let mut limited = same.clone();
        limited["rollout"]["stages"][0]["maxConcurrent"] = json!(2);
        assert!(!are_changed(&same, &limited));
    }
}
