//! The spec of a fleet: placement, stages and limits.

use std::collections::HashSet;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::fleet_selector::{SELECTOR, check_selectors};
use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::KnativeFleetSpec;
use knative_operator_shared::api::fleet::{Selecting, Stage};
use knative_operator_shared::fleet::content::MAX_HISTORY;
use knative_operator_shared::fleet::stage::{REMOVAL, REST};
use knative_operator_shared::syntax;

/// Placement.
pub static PLACEMENT: Rule = Rule {
    id: "fleet-placement",
    severity: Severity::Error,
    requirement: "`spec.placement` of a KnativeFleet has either `clusterSelector`, `propertySelector` or both, or `decision`, and a decision has either `key` or `name`.",
    valid: Example::fleet(
        r#"{"placement": {"decision": {"key": "knative"}}, "serving": {"spec": {"version": "1.22"}}}"#,
    ),
    invalid: Example::fleet(
        r#"{"placement": {"clusterSelector": {}, "decision": {"key": "knative"}}, "serving": {"spec": {"version": "1.22"}}}"#,
    ),
};

/// Stages.
pub static STAGE: Rule = Rule {
    id: "fleet-stage",
    severity: Severity::Error,
    requirement: "Stages of a KnativeFleet have different names, none of them `rest` or `removal`, only the last one has neither `clusterSelector` nor `propertySelector`, and `sortingLabelKey` is the key of a label.",
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
    requirement: "`maxConcurrent`, `maxFailures` and `maxAtOnce` of a KnativeFleet are numbers or percentages from 1% (`maxFailures`: 0%) to 100%; seconds and `revisionHistoryLimit` are not negative, the latter is at most 100, and `progressDeadlineSeconds` is at least 1.",
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
    match (placement.has_selector(), &placement.decision) {
        (true, Some(_)) if placement.cluster_selector.is_some() => {
            fault("spec.placement", "both clusterSelector and decision are set", "remove one");
        }
        (true, Some(_)) => fault("spec.placement", "both propertySelector and decision are set", "remove one"),
        (false, None) => {
            fault("spec.placement", "neither clusterSelector, propertySelector nor decision is set", "set one");
        }
        _ => {}
    }
    if let Some(decision) = &placement.decision {
        match (&decision.key, &decision.name) {
            (Some(_), Some(_)) => fault("spec.placement.decision", "both key and name are set", "remove one"),
            (None, None) => fault("spec.placement.decision", "neither key nor name is set", "set one"),
            _ => {}
        }
    }
    check_selectors("spec.placement", placement, violations);
    for (index, change) in spec.overrides.iter().enumerate() {
        let field = format!("spec.overrides[{index}]");
        if !change.has_selector() {
            let fix = "set it to {} for all clusters, or set propertySelector";
            violations.push(SELECTOR.at(format!("{field}.clusterSelector"), "is missing", fix));
        }
        check_selectors(&field, change, violations);
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
    if spec.revision_history_limit.is_some_and(|limit| limit > MAX_HISTORY) {
        let message = format!("is more than {MAX_HISTORY}, which are kept at most");
        violations.push(LIMIT.at("spec.revisionHistoryLimit", message, "set it to a lower number"));
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
        if !stage.has_selector() && index + 1 < stages.len() {
            violations.push(STAGE.at(
                format!("{field}.clusterSelector"),
                "is not set, so the stages after it have no clusters",
                "set it or propertySelector, or move the stage to the end",
            ));
        }
        if let Some(why) = stage.sorting_label_key.as_deref().and_then(syntax::qualified) {
            violations.push(STAGE.at(format!("{field}.sortingLabelKey"), why, "set it to the key of a label"));
        }
        check_selectors(&field, stage, violations);
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
    use std::borrow::Cow;

    use serde_json::{Value, json};

    use crate::{FleetContext, parse_fleet, validate_fleet, validate_fleet_change};
    use knative_operator_shared::api::{ClusterProfileReference, KnativeFleet};
    use knative_operator_shared::fleet::selector::Traits;

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
            (
                json!({"placement": {"clusterSelector": null, "propertySelector": {}, "decision": {"key": "k"}}}),
                "spec.placement: both propertySelector",
            ),
            (
                json!({"placement": {"propertySelector": {"matchExpressions": [{"key": "a/b.c", "operator": "In"}]}}}),
                "spec.placement.propertySelector.matchExpressions[0].values: In requires values",
            ),
            (
                stage(json!({"name": "a", "propertySelector": {"matchExpressions": [{"key": "a", "operator": "Gt"}]}})),
                "spec.rollout.stages[0].propertySelector.matchExpressions[0].operator: \"Gt\" is not",
            ),
            (
                change(json!({"propertySelector": {"matchExpressions": [{"key": "", "operator": "Exists"}]}})),
                "spec.overrides[0].propertySelector.matchExpressions[0].key: is missing; set it to a property",
            ),
            (change(json!({"serving": {}})), "spec.overrides[0].clusterSelector: is missing"),
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
            (json!({"revisionHistoryLimit": 101}), "spec.revisionHistoryLimit: is more than 100"),
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
            let traits = Traits {
                labels: Cow::Owned([("tier".to_owned(), tier.to_owned())].into()),
                properties: Cow::Owned([("region".to_owned(), format!("{tier}, far away"))].into()),
                are_unreadable: false,
            };
            (reference, traits)
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
            (
                json!({"placement": {"propertySelector": {"matchLabels": {"region": "canary"}}}}),
                "spec.placement: selects no ClusterProfile; compare it with labels and status.properties",
            ),
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
        let far = json!({"matchLabels": {"region": "canary, far away"}});
        let canary = json!({"name": "canary", "clusterSelector": selector("canary"), "propertySelector": far});
        assert!(with(json!({"rollout": {"stages": [canary, {"name": "all"}]}})).is_empty());
        let violations = with(json!({"overrides": [{"propertySelector": far, "serving": {"spec": {"version": "z"}}}]}));
        assert!(violations[0].contains("(cluster n/a)"), "{violations:?}");
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
