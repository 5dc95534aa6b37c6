//! Checks the spec of a fleet, as far as the schema does not.

use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use knative_operator_shared::api::KnativeFleetSpec;
use knative_operator_shared::api::fleet::{FleetOverride, Stage, Template};
use kube::core::Selector;
use serde_json::{Map, Value};

use super::removal;
use super::stage::REST;

/// Checks `spec`.
///
/// # Errors
///
/// The field, the problem and the fix.
pub fn check(spec: &KnativeFleetSpec) -> Result<(), String> {
    let placement = &spec.placement;
    match (&placement.cluster_selector, &placement.decision) {
        (Some(_), Some(_)) => {
            return Err("spec.placement: both clusterSelector and decision are set; remove one".to_owned());
        }
        (None, None) => return Err("spec.placement: neither clusterSelector nor decision is set; set one".to_owned()),
        _ => {}
    }
    if spec.components().next().is_none() {
        return Err("spec: neither serving nor eventing is set; set at least one".to_owned());
    }
    for component in spec.components() {
        let has_target =
            spec.template(component).is_some_and(|template| template.spec.contains_key("clusterProfileRef"));
        if has_target {
            let field = component.word();
            return Err(format!("spec.{field}.spec.clusterProfileRef: a template has no cluster; remove it"));
        }
    }
    spec.overrides.iter().enumerate().try_for_each(|(index, change)| check_override(index, change))?;
    check_stages(&spec.rollout.stages)?;
    check_limit("spec.removal.maxAtOnce", spec.removal.max_at_once.as_ref(), 1)
}

fn check_override(index: usize, change: &FleetOverride) -> Result<(), String> {
    let field = format!("spec.overrides[{index}]");
    Selector::try_from(change.cluster_selector.clone()).map_err(|e| format!("{field}.clusterSelector: {e}"))?;
    for (name, patch) in [("serving", &change.serving), ("eventing", &change.eventing)] {
        if patch.get("spec").and_then(|spec| spec.get("clusterProfileRef")).is_some() {
            return Err(format!("{field}.{name}.spec.clusterProfileRef: a template has no cluster; remove it"));
        }
        if let Some(key) = patch.keys().find(|key| !["metadata", "spec"].contains(&key.as_str())) {
            return Err(format!("{field}.{name}.{key}: unknown field; an override has metadata and spec"));
        }
        let merged = without_nulls(patch);
        serde_json::from_value::<Template>(Value::Object(merged)).map_err(|e| format!("{field}.{name}: {e}"))?;
    }
    Ok(())
}

/// `patch` without the fields that it removes.
fn without_nulls(patch: &Map<String, Value>) -> Map<String, Value> {
    let kept = patch.iter().filter(|(_, value)| !value.is_null());
    kept.map(|(key, value)| {
        (key.clone(), value.as_object().map_or_else(|| value.clone(), |map| without_nulls(map).into()))
    })
    .collect()
}

fn check_stages(stages: &[Stage]) -> Result<(), String> {
    let mut names = HashSet::new();
    for (index, stage) in stages.iter().enumerate() {
        let field = format!("spec.rollout.stages[{index}]");
        if [REST, removal::STAGE].contains(&stage.name.as_str()) {
            return Err(format!("{field}.name: \"{}\" is reserved; choose another name", stage.name));
        }
        if !names.insert(&stage.name) {
            return Err(format!(
                "{field}.name: \"{}\" is the name of an earlier stage, too; choose another name",
                stage.name
            ));
        }
        if stage.cluster_selector.is_none() && index + 1 < stages.len() {
            return Err(format!(
                "{field}.clusterSelector: is not set, so the stages after it have no clusters; set it, or move the stage to the end"
            ));
        }
        check_limit(&format!("{field}.maxConcurrent"), stage.max_concurrent.as_ref(), 1)?;
        check_limit(&format!("{field}.maxFailures"), stage.max_failures.as_ref(), 0)?;
        for (name, value) in
            [("minReadySeconds", stage.min_ready_seconds), ("progressDeadlineSeconds", stage.progress_deadline_seconds)]
        {
            if value.is_some_and(|value| value < 0) {
                return Err(format!("{field}.{name}: is negative; set it to a number of seconds"));
            }
        }
    }
    Ok(())
}

fn check_limit(field: &str, value: Option<&IntOrString>, least: i32) -> Result<(), String> {
    let number = match value {
        None => return Ok(()),
        Some(IntOrString::Int(number)) => Some(*number),
        Some(IntOrString::String(text)) => {
            let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
            percent.filter(|percent| *percent <= 100)
        }
    };
    match number {
        Some(number) if number >= least => Ok(()),
        _ => Err(format!("{field}: must be a number or a percentage, at least {least} and at most 100%")),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn fault_has_field_and_fix() {
        let valid = json!({"placement": {"clusterSelector": {}}, "serving": {"spec": {"version": "1.22"}}, "rollout": {"stages": [
            {"name": "canary", "clusterSelector": {}, "maxConcurrent": 1, "maxFailures": "0%"}, {"name": "prod", "maxConcurrent": "100%"}]}});
        let check = |patch: Value| {
            let mut spec = valid.clone();
            json_patch::merge(&mut spec, &patch);
            super::check(&serde_json::from_value(spec).unwrap())
        };
        assert_eq!(check(json!({})), Ok(()));
        let stage = |stage: Value| json!({"rollout": {"stages": [stage]}});
        let change = |change: Value| json!({"overrides": [change]});
        for (patch, expected) in [
            (json!({"placement": {"decision": {"key": "k"}}}), "spec.placement: both"),
            (json!({"placement": {"clusterSelector": null}}), "spec.placement: neither"),
            (json!({"serving": null}), "spec: neither serving nor eventing"),
            (json!({"serving": {"spec": {"clusterProfileRef": {}}}}), "spec.serving.spec.clusterProfileRef"),
            (
                change(json!({"clusterSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}})),
                "spec.overrides[0].clusterSelector",
            ),
            (change(json!({"clusterSelector": {}, "serving": {"spec": "x"}})), "spec.overrides[0].serving: "),
            (
                change(json!({"clusterSelector": {}, "serving": {"metadata": {"labels": {"a": 1}}}})),
                "spec.overrides[0].serving: ",
            ),
            (
                change(json!({"clusterSelector": {}, "eventing": {"version": "1"}})),
                "spec.overrides[0].eventing.version: unknown field",
            ),
            (
                change(json!({"clusterSelector": {}, "serving": {"spec": {"clusterProfileRef": null}}})),
                "spec.overrides[0].serving.spec.clusterProfileRef",
            ),
            (stage(json!({"name": "rest"})), "spec.rollout.stages[0].name: \"rest\" is reserved"),
            (
                json!({"rollout": {"stages": [{"name": "a", "clusterSelector": {}}, {"name": "a"}]}}),
                "spec.rollout.stages[1].name",
            ),
            (json!({"rollout": {"stages": [{"name": "a"}, {"name": "b"}]}}), "spec.rollout.stages[0].clusterSelector"),
            (stage(json!({"name": "a", "maxConcurrent": 0})), "spec.rollout.stages[0].maxConcurrent"),
            (stage(json!({"name": "a", "maxConcurrent": "0%"})), "at least 1 and at most 100%"),
            (stage(json!({"name": "a", "maxFailures": "101%"})), "spec.rollout.stages[0].maxFailures"),
            (stage(json!({"name": "a", "minReadySeconds": -1})), "spec.rollout.stages[0].minReadySeconds"),
            (json!({"removal": {"maxAtOnce": "many"}}), "spec.removal.maxAtOnce"),
        ] {
            let error = check(patch).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert_eq!(
            check(change(json!({"clusterSelector": {}, "serving": {"spec": {"config": null}, "metadata": null}}))),
            Ok(())
        );
    }
}
