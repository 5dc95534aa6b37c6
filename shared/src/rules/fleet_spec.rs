//! The spec of a fleet: placement, selectors, stages and limits.

use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::rule::{Example, Rule, Severity, Violation};
use super::syntax;
use crate::api::KnativeFleetSpec;
use crate::api::fleet::Stage;
use crate::fleet::selector::selector as selector_of;
use crate::fleet::stage::{REMOVAL, REST};

/// Placement.
pub static PLACEMENT: Rule = Rule {
    id: "fleet-placement",
    severity: Severity::Error,
    requirement: "`spec.placement` of a KnativeFleet has either `clusterSelector` or `decision`, and a decision has either `key` or `name`.",
    valid: Example::fleet(
        r#"{"placement": {"decision": {"key": "knative"}}, "serving": {"spec": {"version": "1.22"}}}"#,
    ),
    invalid: Example::fleet(
        r#"{"placement": {"clusterSelector": {}, "decision": {"key": "knative"}}, "serving": {"spec": {"version": "1.22"}}}"#,
    ),
};

/// Selectors.
pub static SELECTOR: Rule = Rule {
    id: "fleet-selector",
    severity: Severity::Error,
    requirement: "Each `clusterSelector` of a KnativeFleet is a label selector.",
    valid: Example::fleet(
        r#"{"placement": {"clusterSelector": {"matchExpressions": [{"key": "env", "operator": "DoesNotExist"}]}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.22"}}}"#,
    ),
    invalid: Example::fleet(
        r#"{"placement": {"clusterSelector": {"matchExpressions": [{"key": "env", "operator": "Like", "values": ["p"]}]}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.22"}}}"#,
    ),
};

/// Stages.
pub static STAGE: Rule = Rule {
    id: "fleet-stage",
    severity: Severity::Error,
    requirement: "Stages of a KnativeFleet have different names, none of them `rest` or `removal`, only the last one has no `clusterSelector`, and `sortingLabelKey` is the key of a label.",
    valid: Example::fleet(
        r#"{"placement": {"clusterSelector": {}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.22"}}, "rollout": {"stages": [{"name": "canary", "clusterSelector": {}}, {"name": "prod"}]}}"#,
    ),
    invalid: Example::fleet(
        r#"{"placement": {"clusterSelector": {}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.22"}}, "rollout": {"stages": [{"name": "canary", "clusterSelector": {}}, {"name": "canary"}]}}"#,
    ),
};

/// Numbers and percentages.
pub static LIMIT: Rule = Rule {
    id: "fleet-limit",
    severity: Severity::Error,
    requirement: "`maxConcurrent`, `maxFailures` and `maxAtOnce` of a KnativeFleet are numbers or percentages from 1% (`maxFailures`: 0%) to 100%; seconds and `revisionHistoryLimit` are not negative, and `progressDeadlineSeconds` is at least 1.",
    valid: Example::fleet(
        r#"{"placement": {"clusterSelector": {}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.22"}}, "rollout": {"stages": [{"name": "all", "maxConcurrent": "25%", "maxFailures": 0}]}}"#,
    ),
    invalid: Example::fleet(
        r#"{"placement": {"clusterSelector": {}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.22"}}, "rollout": {"stages": [{"name": "all", "maxConcurrent": "101%"}]}}"#,
    ),
};

pub fn check(spec: &KnativeFleetSpec, violations: &mut Vec<Violation>) {
    let placement = &spec.placement;
    let mut fault = |field, message, fix| violations.push(PLACEMENT.at(field, message, fix));
    match (&placement.cluster_selector, &placement.decision) {
        (Some(_), Some(_)) => fault("spec.placement", "both clusterSelector and decision are set", "remove one"),
        (None, None) => fault("spec.placement", "neither clusterSelector nor decision is set", "set one"),
        _ => {}
    }
    if let Some(decision) = &placement.decision {
        match (&decision.key, &decision.name) {
            (Some(_), Some(_)) => fault("spec.placement.decision", "both key and name are set", "remove one"),
            (None, None) => fault("spec.placement.decision", "neither key nor name is set", "set one"),
            _ => {}
        }
    }
    check_selector("spec.placement", placement.cluster_selector.as_ref(), violations);
    for (index, change) in spec.overrides.iter().enumerate() {
        check_selector(&format!("spec.overrides[{index}]"), Some(&change.cluster_selector), violations);
    }
    check_stages(&spec.rollout.stages, violations);
    check_limit("spec.removal.maxAtOnce", spec.removal.max_at_once.as_ref(), 1, violations);
    if spec.removal.grace_period_seconds.is_some_and(|seconds| seconds < 0) {
        let fix = "set it to a number of seconds";
        violations.push(LIMIT.at("spec.removal.gracePeriodSeconds", "is negative", fix));
    }
    if spec.revision_history_limit.is_some_and(|limit| limit < 0) {
        violations.push(LIMIT.at("spec.revisionHistoryLimit", "is negative", "set it to 0 or a higher number"));
    }
}

fn check_selector(within: &str, selector: Option<&LabelSelector>, violations: &mut Vec<Violation>) {
    let (field, before) = (format!("{within}.clusterSelector"), violations.len());
    let expressions = selector.and_then(|selector| selector.match_expressions.as_deref()).unwrap_or_default();
    for (index, expression) in expressions.iter().enumerate() {
        let field = format!("{field}.matchExpressions[{index}]");
        if expression.key.is_empty() {
            violations.push(SELECTOR.at(format!("{field}.key"), "is missing", "set it to a label"));
        }
        let has_values = expression.values.as_ref().is_some_and(|values| !values.is_empty());
        match (expression.operator.as_str(), has_values) {
            ("In" | "NotIn", true) | ("Exists" | "DoesNotExist", false) => {}
            (operator @ ("In" | "NotIn"), false) => {
                violations.push(SELECTOR.at(
                    format!("{field}.values"),
                    format!("{operator} requires values"),
                    "set them",
                ));
            }
            (operator @ ("Exists" | "DoesNotExist"), true) => {
                let message = format!("{operator} has no values");
                violations.push(SELECTOR.at(format!("{field}.values"), message, "remove them"));
            }
            (operator, _) => {
                let fix = "use In, NotIn, Exists or DoesNotExist";
                violations.push(SELECTOR.at(
                    format!("{field}.operator"),
                    format!("\"{operator}\" is not an operator"),
                    fix,
                ));
            }
        }
    }
    if let Some(Err(error)) = selector.cloned().map(selector_of).filter(|_| violations.len() == before) {
        violations.push(SELECTOR.at(field, error, "see `kubectl explain knativefleet.spec`"));
    }
}

fn check_stages(stages: &[Stage], violations: &mut Vec<Violation>) {
    let mut names = HashSet::new();
    for (index, stage) in stages.iter().enumerate() {
        let field = format!("spec.rollout.stages[{index}]");
        if [REST, REMOVAL].contains(&stage.name.as_str()) {
            let message = format!("\"{}\" is reserved", stage.name);
            violations.push(STAGE.at(format!("{field}.name"), message, "choose another name"));
        }
        if !names.insert(&stage.name) {
            let message = format!("\"{}\" is the name of an earlier stage, too", stage.name);
            violations.push(STAGE.at(format!("{field}.name"), message, "choose another name"));
        }
        if stage.cluster_selector.is_none() && index + 1 < stages.len() {
            violations.push(STAGE.at(
                format!("{field}.clusterSelector"),
                "is not set, so the stages after it have no clusters",
                "set it, or move the stage to the end",
            ));
        }
        if let Some(why) = stage.sorting_label_key.as_deref().and_then(syntax::qualified) {
            violations.push(STAGE.at(format!("{field}.sortingLabelKey"), why, "set it to the key of a label"));
        }
        check_selector(&field, stage.cluster_selector.as_ref(), violations);
        check_limit(&format!("{field}.maxConcurrent"), stage.max_concurrent.as_ref(), 1, violations);
        check_limit(&format!("{field}.maxFailures"), stage.max_failures.as_ref(), 0, violations);
        let seconds = [
            ("minReadySeconds", stage.min_ready_seconds, 0),
            ("soakSeconds", stage.soak_seconds, 0),
            ("progressDeadlineSeconds", stage.progress_deadline_seconds, 1),
        ];
        for (name, value, least) in seconds {
            if let Some(value) = value.filter(|value| *value < least) {
                let message = format!("{value} is less than {least}");
                violations.push(LIMIT.at(format!("{field}.{name}"), message, format!("set it to {least} or more")));
            }
        }
    }
}

fn check_limit(field: &str, value: Option<&IntOrString>, least: i32, violations: &mut Vec<Violation>) {
    let (text, number) = match value {
        None => return,
        Some(IntOrString::Int(number)) => (number.to_string(), Some(*number)),
        Some(IntOrString::String(text)) => {
            let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
            (format!("\"{text}\""), percent.filter(|percent| *percent <= 100))
        }
    };
    if number.is_none_or(|number| number < least) {
        let message = format!("{text} is not a number of at least {least}, or a percentage from {least}% to 100%");
        violations.push(LIMIT.at(field, message, "set it to one such as 5 or \"25%\""));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use crate::api::{ClusterProfileReference, KnativeFleet};
    use crate::rules::{FleetContext, parse_fleet, validate_fleet, validate_fleet_change};

    fn fleet(patch: &Value) -> KnativeFleet {
        let mut fleet = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": "f", "namespace": "n"}, "spec": {
            "placement": {"clusterSelector": {}}, "serving": {"spec": {"version": "1.22"}}, "rollout": {"stages": [
            {"name": "canary", "clusterSelector": {}, "maxConcurrent": 1, "maxFailures": "0%"}, {"name": "prod", "maxConcurrent": "100%"}]}}});
        json_patch::merge(&mut fleet, &json!({"spec": patch}));
        serde_json::from_value(fleet).unwrap()
    }

    fn check(patch: &Value, context: &FleetContext<'_>) -> Vec<String> {
        validate_fleet(&fleet(patch), context).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn violation_has_field_and_fix() {
        assert!(check(&json!({}), &FleetContext::default()).is_empty());
        let stage = |stage: Value| json!({"rollout": {"stages": [stage]}});
        let change = |change: Value| json!({"overrides": [change]});
        for (patch, expected) in [
            (json!({"placement": {"decision": {"key": "k"}}}), "spec.placement: both"),
            (json!({"placement": {"clusterSelector": null}}), "spec.placement: neither"),
            (
                json!({"placement": {"clusterSelector": null, "decision": {"key": "k", "name": "n"}}}),
                "spec.placement.decision: both key and name",
            ),
            (
                json!({"placement": {"clusterSelector": null, "decision": {"namespace": "n"}}}),
                "spec.placement.decision: neither key nor name",
            ),
            (json!({"serving": null}), "spec: neither serving nor eventing"),
            (json!({"serving": {"spec": {"clusterProfileRef": {}}}}), "spec.serving.spec.clusterProfileRef"),
            (
                change(json!({"clusterSelector": {"matchExpressions": [{"key": "a", "operator": "Like"}]}})),
                "spec.overrides[0].clusterSelector.matchExpressions[0].operator: \"Like\" is not",
            ),
            (
                json!({"placement": {"clusterSelector": {"matchExpressions": [{"key": "a", "operator": "In"}]}}}),
                "spec.placement.clusterSelector.matchExpressions[0].values: In requires values",
            ),
            (
                change(json!({"clusterSelector": {}, "serving": {"spec": "x"}})),
                "spec.overrides[0].serving.spec: \"x\" is not an object",
            ),
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
            (stage(json!({"name": "a", "maxConcurrent": 0})), "spec.rollout.stages[0].maxConcurrent: 0 is not"),
            (stage(json!({"name": "a", "maxConcurrent": "0%"})), "from 1% to 100%"),
            (stage(json!({"name": "a", "maxFailures": "101%"})), "spec.rollout.stages[0].maxFailures: \"101%\""),
            (stage(json!({"name": "a", "minReadySeconds": -1})), "spec.rollout.stages[0].minReadySeconds"),
            (stage(json!({"name": "a", "soakSeconds": -1})), "spec.rollout.stages[0].soakSeconds"),
            (stage(json!({"name": "a", "sortingLabelKey": "a b"})), "spec.rollout.stages[0].sortingLabelKey"),
            (json!({"removal": {"maxAtOnce": "many"}}), "spec.removal.maxAtOnce: \"many\""),
            (json!({"removal": {"gracePeriodSeconds": -1}}), "spec.removal.gracePeriodSeconds: is negative"),
            (json!({"revisionHistoryLimit": -1}), "spec.revisionHistoryLimit"),
            // The rules for single resources.
            (json!({"serving": {"spec": {"version": "x"}}}), "spec.serving.spec.version: \"x\" is not a version"),
            (
                json!({"eventing": {"spec": {"high-availability": {"replicas": 0}}}}),
                "spec.eventing.spec.high-availability.replicas: ",
            ),
            (
                json!({"eventing": {"spec": {"workloads": [{"name": 1}]}}}),
                "spec.eventing.spec.workloads[0].name: invalid type: integer",
            ),
            (
                change(json!({"clusterSelector": {}, "serving": {"spec": {"version": "y"}}})),
                "spec.overrides[0].serving.spec.version: \"y\" is not a version",
            ),
        ] {
            let violations = check(&patch, &FleetContext::default());
            assert!(violations.len() == 1 && violations[0].contains(expected), "{expected}: {violations:?}");
        }
        let removing = change(
            json!({"clusterSelector": {}, "serving": {"spec": {"config": null, "version": null}, "metadata": {"labels": null}}}),
        );
        assert!(check(&removing, &FleetContext::default()).is_empty());
        let all = check(
            &json!({"placement": {"decision": {"key": "k"}}, "serving": {"spec": {"version": "x"}}, "removal": {"maxAtOnce": 0}}),
            &FleetContext::default(),
        );
        assert_eq!(all.len(), 3, "{all:?}");
    }

    #[test]
    fn clusters_of_fleet_and_stages_are_checked() {
        let profile = |name: &str, tier: &str| {
            let reference = ClusterProfileReference { name: name.to_owned(), namespace: "n".to_owned() };
            (reference, [("tier".to_owned(), tier.to_owned())].into())
        };
        let profiles = [profile("a", "canary"), profile("b", "prod"), profile("c", "prod")];
        let context = FleetContext { profiles: Some(&profiles), ..FleetContext::default() };
        let selector = |tier: &str| json!({"matchLabels": {"tier": tier}});
        let one = json!({"rollout": {"stages": [{"name": "all"}]}});
        assert!(check(&one, &context).is_empty());
        let with = |patch: Value| {
            let mut whole = one.clone();
            json_patch::merge(&mut whole, &patch);
            check(&whole, &context)
        };
        for (patch, expected) in [
            (json!({"placement": {"clusterSelector": selector("test")}}), "spec.placement.clusterSelector: selects no"),
            (json!({"placement": {"namespaces": ["n", "m"]}}), "spec.placement.namespaces[1]: namespace m has no"),
            (
                json!({"rollout": {"stages": [{"name": "x", "clusterSelector": selector("test")}]}}),
                "spec.rollout.stages[0]: stage x has no cluster",
            ),
            // The third override makes the template invalid, on one cluster.
            (
                json!({"overrides": [
                    {"clusterSelector": {}, "serving": {"spec": {"high-availability": {"replicas": 2}}}},
                    {"clusterSelector": selector("none"), "serving": {"spec": {"config": null}}},
                    {"clusterSelector": selector("prod"), "serving": {"spec": {"high-availability": {"replicas": 0}}}}]}),
                "spec.overrides[2].serving.spec.high-availability.replicas: ",
            ),
        ] {
            let violations = with(patch);
            assert!(violations.len() == 1 && violations[0].contains(expected), "{expected}: {violations:?}");
        }
        let violations =
            with(json!({"overrides": [{"clusterSelector": selector("prod"), "serving": {"spec": {"version": "z"}}}]}));
        assert!(violations[0].contains("(cluster n/b)"), "{violations:?}");
    }

    #[test]
    fn update_is_not_refused_for_existing_violation() {
        let old = fleet(&json!({"serving": {"spec": {"version": "x"}}, "removal": {"maxAtOnce": 0}}));
        let new = fleet(&json!({"serving": {"spec": {"version": "x"}}, "removal": {"maxAtOnce": -1}}));
        let fields: Vec<_> = validate_fleet_change(&new, Some(&old), &FleetContext::default())
            .into_iter()
            .map(|violation| violation.field)
            .collect();
        assert_eq!(fields, ["spec.removal.maxAtOnce"]);
    }

    #[test]
    fn null_counts_as_omitted_outside_overrides() {
        let object = json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet", "metadata": {"name": "f"},
            "spec": {"placement": {"clusterSelector": {}}, "rollout": null, "removal": {"policy": null}, "overrides": [{"clusterSelector": {}, "serving": {"spec": {"config": null}}}]}});
        let fleet = parse_fleet(&object).unwrap();
        assert_eq!(fleet.spec.overrides[0].serving["spec"], json!({"config": null}));
        let wrong = json!({"metadata": {"name": "f"}, "spec": {"placement": {"clusterSelector": {}}, "rollout": {"stages": [{"name": 1}]}}});
        assert_eq!(parse_fleet(&wrong).unwrap_err().field, "spec.rollout.stages[0].name");
    }
}
