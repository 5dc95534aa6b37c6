//! Names in the spec that the release lacks, and settings without effect: the operator reports them
//! instead of ignoring them silently.

use std::collections::BTreeSet;

use super::context::{ReleaseNames, Workload};
use super::rule::{Example, Rule, Severity, Violation};
use knative_operator_shared::api::{CommonSpec, ContainerProbe, Knative, WorkloadOverride};
use knative_operator_shared::text::nearest;

/// Declares a rule about a name.
macro_rules! name {
    ($(#[$doc:meta])* $rule:ident, $id:literal, $requirement:literal, $valid:literal, $invalid:literal) => {
        $(#[$doc])*
        pub static $rule: Rule = Rule {
            id: $id,
            severity: Severity::Warning,
            requirement: $requirement,
            valid: Example::serving($valid),
            invalid: Example::serving($invalid),
        };
    };
}

name!(
    /// Workloads.
    WORKLOAD, "workload-unknown", "The release has a workload of that name, or it is `*`, for all workloads.",
    r#"{"workloads": [{"name": "activator", "replicas": 2}]}"#, r#"{"workloads": [{"name": "activater", "replicas": 2}]}"#
);
name!(
    /// Containers.
    CONTAINER, "container-unknown", "The workload has a container of that name.",
    r#"{"workloads": [{"name": "activator", "env": [{"container": "activator"}]}]}"#,
    r#"{"workloads": [{"name": "activator", "env": [{"container": "main"}]}]}"#
);
name!(
    /// Services.
    SERVICE, "service-unknown", "The release has a Service of that name.",
    r#"{"services": [{"name": "activator-service", "labels": {"a": "b"}}]}"#, r#"{"services": [{"name": "activator", "labels": {"a": "b"}}]}"#
);
name!(
    /// PodDisruptionBudgets.
    BUDGET, "budget-unknown", "The release has a PodDisruptionBudget of that name.",
    r#"{"podDisruptionBudgets": [{"name": "activator-pdb", "minAvailable": 1}]}"#,
    r#"{"podDisruptionBudgets": [{"name": "activator", "minAvailable": 1}]}"#
);
name!(
    /// ConfigMaps.
    CONFIG_MAP, "config-map-unknown", "The release has a ConfigMap of that name.",
    r#"{"config": {"network": {"domain-template": "x"}}}"#, r#"{"config": {"networking": {"domain-template": "x"}}}"#
);
name!(
    /// Keys of ConfigMaps.
    CONFIG_KEY, "config-key-unknown", "A key of a ConfigMap is not a misspelling of a key that the release documents.",
    r#"{"config": {"network": {"domain-template": "x"}}}"#, r#"{"config": {"network": {"domain-templat": "x"}}}"#
);
name!(
    /// Images.
    IMAGE, "image-unknown", "The release has a container, environment variable or cached image of that name.",
    r#"{"registry": {"override": {"activator": "registry.example/a:1"}}}"#, r#"{"registry": {"override": {"activater": "registry.example/a:1"}}}"#
);
name!(
    /// Settings without effect.
    NO_EFFECT, "no-effect", "Every setting has an effect.",
    r#"{"workloads": [{"name": "activator", "labels": {"a": "b"}}]}"#,
    r#"{"workloads": [{"name": "activator", "version": "1.22"}]}"#
);

/// Similarity, from 0 to 1, from which a name counts as a misspelling.
const MISSPELLING_SIMILARITY: f64 = 0.93;
/// Maximum number of names without effect that are compared with those of the release.
const MAX_COMPARED: usize = 20;

impl ReleaseNames {
    /// Names and settings in the spec of `resource` that match nothing in this release, with the
    /// nearest name.
    pub fn unmatched(&self, resource: &Knative) -> Vec<Violation> {
        let (common, mut violations) = (resource.common(), Vec::new());
        for (path, given) in common.overrides() {
            if given.is_for_all() {
                self.all_workloads(&path, given, &mut violations);
            } else {
                self.workload(&path, given, &mut violations);
            }
        }
        self.by_name(common, &mut violations);
        self.config(common, &mut violations);
        self.registry(common, &mut violations);
        violations
    }

    /// Reports what has no effect in defaults for all workloads, and containers that none has.
    fn all_workloads(&self, path: &str, given: &WorkloadOverride, violations: &mut Vec<Violation>) {
        let fields = [
            ("replicas", given.replicas.is_some(), "use spec.high-availability"),
            ("hostNetwork", given.host_network.is_some(), "set it for single workloads"),
            ("env", !given.env.is_empty(), "set it for single workloads"),
            ("readinessProbes", !given.readiness_probes.is_empty(), "set it for single workloads"),
            ("livenessProbes", !given.liveness_probes.is_empty(), "set it for single workloads"),
            ("version", given.version.is_some(), "remove it"),
            ("volumeMounts", !given.volume_mounts.is_empty(), "remove it"),
        ];
        for (field, _, fix) in fields.into_iter().filter(|(_, is_set, _)| *is_set) {
            violations.push(NO_EFFECT.at(format!("{path}.{field}"), "has no effect for all workloads", fix));
        }
        let deployed: BTreeSet<&str> =
            self.workloads.values().flat_map(|workload| workload.containers.keys().map(String::as_str)).collect();
        for (index, given) in given.resources.iter().enumerate() {
            if !given.container.is_empty() && !given.is_for_all() && !deployed.contains(given.container.as_str()) {
                let field = format!("{path}.resources[{index}].container");
                let known = deployed.iter().copied();
                violations.push(unknown(violations.len(), &CONTAINER, field, "container", &given.container, known));
            }
        }
    }

    fn workload(&self, path: &str, given: &WorkloadOverride, violations: &mut Vec<Violation>) {
        let has_autoscaler = self.autoscalers.contains(autoscaler_of(&given.name));
        let Some(workload) = self.workloads.get(&given.name).filter(|w| w.overridable) else {
            if !(given.name.is_empty() || has_autoscaler && given.replicas.is_some()) {
                let known = self.workloads.iter().filter(|(_, w)| w.overridable).map(|(name, _)| name.as_str());
                violations.push(unknown(
                    violations.len(),
                    &WORKLOAD,
                    format!("{path}.name"),
                    "workload",
                    &given.name,
                    known,
                ));
            }
            return;
        };
        if given.replicas.is_some() && !workload.replicas && !has_autoscaler {
            let message = format!("has no effect, because {} sets its replicas itself", given.name);
            violations.push(NO_EFFECT.at(format!("{path}.replicas"), message, "remove it"));
        }
        for (field, set) in [("version", given.version.is_some()), ("volumeMounts", !given.volume_mounts.is_empty())] {
            if set {
                violations.push(NO_EFFECT.at(
                    format!("{path}.{field}"),
                    "is accepted for compatibility with the Go operator, and ignored",
                    "remove it",
                ));
            }
        }
        let places = [
            ("resources", given.resources.iter().map(|r| r.container.as_str()).collect::<Vec<_>>()),
            ("env", given.env.iter().map(|e| e.container.as_str()).collect()),
            ("readinessProbes", given.readiness_probes.iter().map(|p| p.container.as_str()).collect()),
            ("livenessProbes", given.liveness_probes.iter().map(|p| p.container.as_str()).collect()),
        ];
        for (field, names) in places {
            for (index, name) in names
                .into_iter()
                .enumerate()
                .filter(|(_, name)| !workload.containers.contains_key(*name) && !name.is_empty())
            {
                let known = workload.containers.keys().map(String::as_str);
                violations.push(unknown(
                    violations.len(),
                    &CONTAINER,
                    format!("{path}.{field}[{index}].container"),
                    "container of this workload",
                    name,
                    known,
                ));
            }
        }
        probes(path, given, workload, violations);
    }

    fn by_name(&self, common: &CommonSpec, violations: &mut Vec<Violation>) {
        let is_deployed = |name: &String| self.workloads.values().any(|w| w.containers.contains_key(name));
        for (index, given) in common.resources.iter().enumerate().filter(|(_, r)| !is_deployed(&r.container)) {
            let field = format!("spec.resources[{index}].container");
            let deployed: BTreeSet<&str> =
                self.workloads.values().flat_map(|w| w.containers.keys().map(String::as_str)).collect();
            violations.push(unknown(
                violations.len(),
                &CONTAINER,
                field,
                "container",
                &given.container,
                deployed.into_iter(),
            ));
        }
        for (index, given) in
            common.services.iter().enumerate().filter(|(_, s)| !s.name.is_empty() && !self.services.contains(&s.name))
        {
            let field = format!("spec.services[{index}].name");
            violations.push(unknown(
                violations.len(),
                &SERVICE,
                field,
                "Service",
                &given.name,
                self.services.iter().map(String::as_str),
            ));
        }
        for (index, given) in common.pod_disruption_budgets.iter().enumerate() {
            let path = format!("spec.podDisruptionBudgets[{index}]");
            if !given.name.is_empty() && !self.budgets.contains(&given.name) {
                let known = self.budgets.iter().map(String::as_str);
                violations.push(unknown(
                    violations.len(),
                    &BUDGET,
                    format!("{path}.name"),
                    "PodDisruptionBudget",
                    &given.name,
                    known,
                ));
            }
            for (field, set) in [
                ("selector", given.selector.is_some()),
                ("unhealthyPodEvictionPolicy", given.unhealthy_pod_eviction_policy.is_some()),
            ] {
                if set {
                    violations.push(NO_EFFECT.at(
                        format!("{path}.{field}"),
                        "is accepted for compatibility with the Go operator, and ignored",
                        "remove it",
                    ));
                }
            }
        }
    }

    fn config(&self, common: &CommonSpec, violations: &mut Vec<Violation>) {
        for (map, entries) in &common.config {
            let Some((_, documented)) = self.configs.iter().find(|(known, _)| matches_config_map(known, map)) else {
                let short = self.configs.keys().map(|k| k.strip_prefix("config-").unwrap_or(k));
                violations.push(unknown(
                    violations.len(),
                    &CONFIG_MAP,
                    format!("spec.config.{map}"),
                    "ConfigMap",
                    map,
                    short,
                ));
                continue;
            };
            for key in entries.keys().filter(|key| !documented.contains(*key)).take(MAX_COMPARED) {
                // Not every valid key is documented, so only likely misspellings are reported.
                if let Some(near) = nearest(key, documented.iter().map(String::as_str))
                    .filter(|near| strsim::jaro_winkler(near, key) > MISSPELLING_SIMILARITY)
                {
                    let message = format!("ConfigMap {map} documents no key \"{key}\"");
                    violations.push(CONFIG_KEY.at(
                        format!("spec.config.{map}.{key}"),
                        message,
                        format!("did you mean \"{near}\"?"),
                    ));
                }
            }
        }
    }

    fn registry(&self, common: &CommonSpec, violations: &mut Vec<Violation>) {
        let Some(registry) = common.registry.as_ref().filter(|r| !r.overrides.is_empty()) else { return };
        let mut known: BTreeSet<String> = self.images.clone();
        for (workload, Workload { containers, .. }) in &self.workloads {
            for (name, container) in containers {
                known.extend([name.clone(), format!("{workload}/{name}")]);
                known.extend(container.env.iter().cloned());
            }
        }
        for name in registry.overrides.keys().filter(|n| !known.contains(*n)) {
            let what = "container, workload/container, environment variable or cached image";
            violations.push(unknown(
                violations.len(),
                &IMAGE,
                format!("spec.registry.override.{name}"),
                what,
                name,
                known.iter().map(String::as_str),
            ));
        }
    }
}

/// Reports overrides of probes that the release lacks.
fn probes(path: &str, given: &WorkloadOverride, workload: &Workload, violations: &mut Vec<Violation>) {
    let lists = [
        (&given.readiness_probes, "readinessProbes", "readinessProbe"),
        (&given.liveness_probes, "livenessProbes", "livenessProbe"),
    ];
    for (list, field, probe) in lists {
        for (index, given) in list.iter().enumerate().filter(|(_, p)| is_set(p)) {
            let has = |c: &super::context::Container| if probe == "readinessProbe" { c.readiness } else { c.liveness };
            if workload.containers.get(&given.container).is_some_and(|c| !has(c)) {
                let message = format!("container {} has no {probe} to override", given.container);
                violations.push(NO_EFFECT.at(format!("{path}.{field}[{index}]"), message, "remove it"));
            }
        }
    }
}

fn is_set(probe: &ContainerProbe) -> bool {
    *probe != ContainerProbe { container: probe.container.clone(), ..ContainerProbe::default() }
}

/// Name of the HorizontalPodAutoscaler of `workload`.
pub fn autoscaler_of(workload: &str) -> &str {
    match workload {
        "mt-broker-ingress" => "broker-ingress-hpa",
        "mt-broker-filter" => "broker-filter-hpa",
        other => other,
    }
}

/// A ConfigMap's name without `config-`. The Go operator removes seven characters, regardless of
/// what they are: `kourier-bootstrap` is also `-bootstrap`.
pub fn short(name: &str) -> Option<&str> {
    name.get("config-".len()..)
}

/// Whether a spec may refer to the ConfigMap `name` as `given`.
fn matches_config_map(name: &str, given: &str) -> bool {
    name == given || short(name) == Some(given)
}

/// The violation for `name`, which is not among `known`. `found`: how many violations there are
/// before it. Only the first ones say which known name is the nearest: a spec may have many.
fn unknown<'k>(
    found: usize,
    rule: &'static Rule,
    field: String,
    what: &str,
    name: &str,
    known: impl Iterator<Item = &'k str>,
) -> Violation {
    let mut known = known.peekable();
    let fix = if known.peek().is_none() {
        "the release has none".to_owned()
    } else {
        let near = if found < MAX_COMPARED { nearest(name, known) } else { None };
        near.map_or_else(|| "correct it, or remove it".to_owned(), |near| format!("the nearest is \"{near}\""))
    };
    rule.at(field, format!("the release has no {what} called \"{name}\""), fix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_first_names_are_compared() {
        let fix = |found: usize| {
            let known = ["controller", "activator"].into_iter();
            unknown(found, &WORKLOAD, "f".to_owned(), "workload", "activater", known).fix
        };
        assert_eq!(fix(0), "the nearest is \"activator\"");
        assert_eq!(fix(MAX_COMPARED), "correct it, or remove it");
    }
}
