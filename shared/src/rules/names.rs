//! Names in the spec that nothing in the release has, and settings that have no effect: told, not ignored in silence.

use std::collections::BTreeSet;

use super::{Example, Names, Problem, Rule, Severity, Workload};
use crate::api::{CommonSpec, ContainerProbe, Knative, WorkloadOverride};

/// Declares a rule about a name.
macro_rules! name {
    ($(#[$doc:meta])* $rule:ident, $id:literal, $says:literal, $kept:literal, $broken:literal) => {
        $(#[$doc])*
        pub static $rule: Rule = Rule {
            id: $id,
            severity: Severity::Warning,
            says: $says,
            kept: Example::serving($kept),
            broken: Example::serving($broken),
        };
    };
}

name!(
    /// Workloads.
    WORKLOAD, "workload-unknown", "The release has a workload of that name.",
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
    CONFIG_KEY, "config-key-unknown", "A key of a ConfigMap is no misspelling of one that the release explains.",
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

/// How alike two names are, from 0 to 1, for the one to be taken for a misspelling of the other.
const ALIKE: f64 = 0.93;

impl Names {
    /// What of the spec of `resource` is about nothing in this release, each with the nearest name that there is.
    pub fn unmatched(&self, resource: &Knative) -> Vec<Problem> {
        let (common, mut found) = (resource.common(), Vec::new());
        for (path, given) in common.overrides() {
            self.workload(&path, given, &mut found);
        }
        self.by_name(common, &mut found);
        self.config(common, &mut found);
        self.registry(common, &mut found);
        found
    }

    fn workload(&self, path: &str, given: &WorkloadOverride, found: &mut Vec<Problem>) {
        let scaler = self.autoscalers.contains(autoscaler_of(&given.name));
        let Some(workload) = self.workloads.get(&given.name).filter(|w| w.overridable) else {
            if !(given.name.is_empty() || scaler && given.replicas.is_some()) {
                let known = self.workloads.iter().filter(|(_, w)| w.overridable).map(|(name, _)| name.as_str());
                found.push(unknown(&WORKLOAD, format!("{path}.name"), "workload", &given.name, known));
            }
            return;
        };
        if given.replicas.is_some() && !workload.replicas && !scaler {
            let message = format!("has no effect, for nothing but {} itself sets its replicas", given.name);
            found.push(NO_EFFECT.at(format!("{path}.replicas"), message, "remove it"));
        }
        for (field, set) in [("version", given.version.is_some()), ("volumeMounts", !given.volume_mounts.is_empty())] {
            if set {
                found.push(NO_EFFECT.at(
                    format!("{path}.{field}"),
                    "has no effect, as in the Go operator",
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
                found.push(unknown(
                    &CONTAINER,
                    format!("{path}.{field}[{index}].container"),
                    "container of this workload",
                    name,
                    known,
                ));
            }
        }
        probes(path, given, workload, found);
    }

    fn by_name(&self, common: &CommonSpec, found: &mut Vec<Problem>) {
        let deployed: BTreeSet<&str> =
            self.workloads.values().flat_map(|w| w.containers.keys().map(String::as_str)).collect();
        for (index, given) in
            common.resources.iter().enumerate().filter(|(_, r)| !deployed.contains(r.container.as_str()))
        {
            let field = format!("spec.resources[{index}].container");
            found.push(unknown(&CONTAINER, field, "container", &given.container, deployed.iter().copied()));
        }
        for (index, given) in
            common.services.iter().enumerate().filter(|(_, s)| !s.name.is_empty() && !self.services.contains(&s.name))
        {
            let field = format!("spec.services[{index}].name");
            found.push(unknown(&SERVICE, field, "Service", &given.name, self.services.iter().map(String::as_str)));
        }
        for (index, given) in common.pod_disruption_budgets.iter().enumerate() {
            let path = format!("spec.podDisruptionBudgets[{index}]");
            if !given.name.is_empty() && !self.budgets.contains(&given.name) {
                let known = self.budgets.iter().map(String::as_str);
                found.push(unknown(&BUDGET, format!("{path}.name"), "PodDisruptionBudget", &given.name, known));
            }
            for (field, set) in [
                ("selector", given.selector.is_some()),
                ("unhealthyPodEvictionPolicy", given.unhealthy_pod_eviction_policy.is_some()),
            ] {
                if set {
                    found.push(NO_EFFECT.at(
                        format!("{path}.{field}"),
                        "has no effect, as in the Go operator",
                        "remove it",
                    ));
                }
            }
        }
    }

    fn config(&self, common: &CommonSpec, found: &mut Vec<Problem>) {
        for (map, entries) in &common.config {
            let Some((_, explained)) = self.configs.iter().find(|(known, _)| is_called(known, map)) else {
                let short = self.configs.keys().map(|k| k.strip_prefix("config-").unwrap_or(k));
                found.push(unknown(&CONFIG_MAP, format!("spec.config.{map}"), "ConfigMap", map, short));
                continue;
            };
            for key in entries.keys().filter(|key| !explained.contains(*key)) {
                // Not every key that works is explained: only what looks like a slip is told.
                if let Some(near) = nearest(key, explained.iter().map(String::as_str))
                    .filter(|near| strsim::jaro_winkler(near, key) > ALIKE)
                {
                    let message = format!("ConfigMap {map} explains no key \"{key}\"");
                    found.push(CONFIG_KEY.at(
                        format!("spec.config.{map}.{key}"),
                        message,
                        format!("is \"{near}\" meant?"),
                    ));
                }
            }
        }
    }

    fn registry(&self, common: &CommonSpec, found: &mut Vec<Problem>) {
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
            found.push(unknown(
                &IMAGE,
                format!("spec.registry.override.{name}"),
                what,
                name,
                known.iter().map(String::as_str),
            ));
        }
    }
}

/// Probes that are to be adjusted and aren't there.
fn probes(path: &str, given: &WorkloadOverride, workload: &Workload, found: &mut Vec<Problem>) {
    let lists = [
        (&given.readiness_probes, "readinessProbes", "readinessProbe"),
        (&given.liveness_probes, "livenessProbes", "livenessProbe"),
    ];
    for (list, field, probe) in lists {
        for (index, given) in list.iter().enumerate().filter(|(_, p)| is_set(p)) {
            let has = |c: &super::Container| if probe == "readinessProbe" { c.readiness } else { c.liveness };
            if workload.containers.get(&given.container).is_some_and(|c| !has(c)) {
                let message = format!("container {} has no {probe} to adjust", given.container);
                found.push(NO_EFFECT.at(format!("{path}.{field}[{index}]"), message, "remove it"));
            }
        }
    }
}

fn is_set(probe: &ContainerProbe) -> bool {
    *probe != ContainerProbe { container: probe.container.clone(), ..ContainerProbe::default() }
}

/// The name of the HorizontalPodAutoscaler of `workload`.
pub fn autoscaler_of(workload: &str) -> &str {
    match workload {
        "mt-broker-ingress" => "broker-ingress-hpa",
        "mt-broker-filter" => "broker-filter-hpa",
        other => other,
    }
}

/// A ConfigMap's name without `config-`. The Go operator cuts off seven characters, whatever they are: `kourier-bootstrap` is
/// `-bootstrap` too.
pub fn short(name: &str) -> Option<&str> {
    name.get("config-".len()..)
}

/// Whether a ConfigMap called `name` may be called `given` in a spec.
fn is_called(name: &str, given: &str) -> bool {
    name == given || short(name) == Some(given)
}

fn nearest<'k>(name: &str, known: impl Iterator<Item = &'k str>) -> Option<&'k str> {
    let likeness = |k: &str| strsim::jaro_winkler(k, name);
    known.max_by(|a, b| likeness(a).total_cmp(&likeness(b)))
}

fn unknown<'k>(
    rule: &'static Rule,
    field: String,
    what: &str,
    name: &str,
    known: impl Iterator<Item = &'k str>,
) -> Problem {
    let nearest =
        nearest(name, known).map_or_else(|| "there is none at all".to_owned(), |n| format!("the nearest is \"{n}\""));
    rule.at(field, format!("no {what} is called \"{name}\""), nearest)
}
