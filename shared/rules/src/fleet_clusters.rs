//! The clusters of fleets: warnings about fleets and stages without clusters, and about versions.

use super::context::FleetContext;
use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::{Component, KnativeFleet, KnativeFleetSpec};
use knative_operator_shared::fleet::placement::{UnknownProperties, namespaces};
use knative_operator_shared::fleet::stage::{REST, Stages};
use knative_operator_shared::version::Version;

/// A fleet has clusters.
pub static NONE: Rule = Rule {
    id: "fleet-no-clusters",
    severity: Severity::Warning,
    requirement: "`spec.placement` of a KnativeFleet selects a ClusterProfile, and each of its namespaces has one.",
    valid: Example::fleet(
        r#"{"placement": {"clusterSelector": {}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.22"}}}"#,
    ),
    invalid: Example::fleet(
        r#"{"placement": {"clusterSelector": {"matchLabels": {"env": "prd"}}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.22"}}}"#,
    ),
};

/// A stage has clusters.
pub static EMPTY_STAGE: Rule = Rule {
    id: "fleet-stage-empty",
    severity: Severity::Warning,
    requirement: "Each stage of a KnativeFleet selects a cluster of the fleet that no earlier stage selects.",
    valid: Example::fleet(
        r#"{"placement": {"clusterSelector": {}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.22"}}, "rollout": {"stages": [{"name": "all"}]}}"#,
    ),
    invalid: Example::fleet(
        r#"{"placement": {"clusterSelector": {}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.22"}}, "rollout": {"stages": [{"name": "canary", "clusterSelector": {"matchLabels": {"tier": "canry"}}}, {"name": "all"}]}}"#,
    ),
};

/// The properties of the clusters are known, if they decide.
pub static PROPERTIES: Rule = Rule {
    id: "fleet-properties-unknown",
    severity: Severity::Warning,
    requirement: "If stages or overrides of a KnativeFleet have a `propertySelector`, each of its ClusterProfiles has properties; otherwise nothing is written for the fleet.",
    valid: Example::fleet(
        r#"{"placement": {"clusterSelector": {}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.22"}}, "overrides": [{"clusterSelector": {"matchLabels": {"region": "eu"}}, "serving": {"spec": {"high-availability": {"replicas": 2}}}}]}"#,
    ),
    invalid: Example::fleet(
        r#"{"placement": {"clusterSelector": {}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.22"}}, "overrides": [{"propertySelector": {"matchLabels": {"region": "eu"}}, "serving": {"spec": {"high-availability": {"replicas": 2}}}}]}"#,
    ),
};

/// A version is adjacent to the one before.
pub static STEPS: Rule = Rule {
    id: "fleet-version-steps",
    severity: Severity::Warning,
    requirement: "`spec.serving.spec.version` and `spec.eventing.spec.version` of a KnativeFleet change by one minor version; otherwise each cluster is changed in several steps.",
    valid: Example::fleet_change(
        r#"{"placement": {"clusterSelector": {}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.22"}}}"#,
        r#"{"placement": {"clusterSelector": {}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.23"}}}"#,
    ),
    invalid: Example::fleet_change(
        r#"{"placement": {"clusterSelector": {}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.21"}}}"#,
        r#"{"placement": {"clusterSelector": {}, "namespaces": ["rules-fleet"]}, "serving": {"spec": {"version": "1.23"}}}"#,
    ),
};

pub fn check(fleet: &KnativeFleet, context: &FleetContext<'_>, violations: &mut Vec<Violation>) {
    let own = fleet.metadata.namespace.as_deref().unwrap_or_default();
    let placement = &fleet.spec.placement;
    let Some(clusters) = context.selected(placement, own) else { return };
    let known = || context.profiles.unwrap_or_default().iter().map(|(reference, _)| reference.namespace.as_str());
    for (index, namespace) in namespaces(placement, own).unwrap_or_default().into_iter().enumerate() {
        if known().all(|other| other != namespace) {
            let index = if placement.namespaces.is_empty() { String::new() } else { format!("[{index}]") };
            let field = format!("spec.placement.namespaces{index}");
            let fix = "name a namespace with ClusterProfiles, or \"*\" for all";
            violations.push(NONE.at(field, format!("namespace {namespace} has no ClusterProfile"), fix));
        }
    }
    if clusters.is_empty() {
        let (field, fix) = if placement.property_selector.is_none() {
            let fix = "compare it with `kubectl get clusterprofiles --all-namespaces --show-labels`";
            ("spec.placement.clusterSelector", fix)
        } else {
            let fix = "compare it with labels and status.properties: `kubectl get clusterprofiles -A -o yaml`";
            ("spec.placement", fix)
        };
        violations.push(NONE.at(field, "selects no ClusterProfile", fix));
        return;
    }
    let traits = clusters.iter().map(|(reference, traits)| (reference, traits.borrowed()));
    if let Some(UnknownProperties { field, cluster }) = UnknownProperties::find(&fleet.spec, traits) {
        let message =
            format!("is set, but ClusterProfile {cluster} has no status.properties that this version can read");
        violations.push(PROPERTIES.at(field, message, UnknownProperties::FIX));
    }
    let Ok(stages) = Stages::of(&fleet.spec.rollout) else { return };
    let mut counts = vec![0; stages.settings().len()];
    clusters.iter().for_each(|(_, traits)| counts[stages.index_of(traits)] += 1);
    for (index, stage) in stages.settings().iter().enumerate().filter(|(index, _)| counts[*index] == 0) {
        if stage.name != REST {
            violations.push(EMPTY_STAGE.at(
                format!("spec.rollout.stages[{index}]"),
                format!("stage {} has no cluster", stage.name),
                "correct its selectors, or move it before the stage that selects its clusters",
            ));
        }
    }
}

/// Warns about versions in `new` that are not adjacent to those in `old`.
pub fn check_steps(
    new: &KnativeFleetSpec,
    old: &KnativeFleetSpec,
    context: &FleetContext<'_>,
    violations: &mut Vec<Violation>,
) {
    for component in Component::ALL {
        let available = context.catalog.map_or(&[][..], |catalog| catalog.versions(component));
        let version = |spec: &KnativeFleetSpec| {
            let template = spec.template(component)?;
            let asked = template.spec.get("version").map(|version| version.as_str().unwrap_or_default());
            Version::resolve(asked, available).ok()
        };
        let (Some(from), Some(to)) = (version(old), version(new)) else { continue };
        if to.may_follow(Some(&from), component.kind()).is_err() {
            violations.push(STEPS.at(
                format!("spec.{}.spec.version", component.word()),
                format!(
                    "from {from} to {to}, each cluster is changed to {} one after another",
                    from.steps(&to).join(", ")
                ),
                "no action is required",
            ));
        }
    }
}
