//! Names in the spec that nothing in the release has, and settings that have no effect: told, not ignored in silence.

use std::collections::BTreeSet;

use knative_operator_shared::api::{CommonSpec, Knative, WorkloadOverride};
use serde_json::Value;

use super::autoscaling::{autoscaler_of, is_autoscaler, scaled};
use super::pod::{CONTAINERS, is_workload};
use super::{config, probes, workloads};
use crate::object::text;
use crate::packed::Packed;

/// What of the spec of `resource` is about nothing in `objects`, its release: one sentence each, with the path of the
/// field and the nearest name that there is.
pub fn unmatched<'o>(resource: &Knative, objects: impl Iterator<Item = &'o Packed>) -> Vec<String> {
    let objects: Vec<Value> = objects.filter(|o| o.definition().is_none()).map(Packed::open).collect();
    let release = Release { objects: objects.iter().collect() };
    let common = resource.common();
    let mut warnings = Vec::new();
    for (path, given) in common.overrides() {
        release.workload(&path, given, &mut warnings);
    }
    release.by_name(common, &mut warnings);
    release.registry(common, &mut warnings);
    warnings
}

struct Release<'o> {
    objects: Vec<&'o Value>,
}

impl<'o> Release<'o> {
    fn of_kind<'s>(&'s self, kind: &'s str) -> impl Iterator<Item = &'o Value> + 's {
        self.objects.iter().copied().filter(move |o| text(o, "/kind") == kind)
    }

    fn names(&self, kind: &str) -> BTreeSet<&'o str> {
        self.of_kind(kind).map(|o| text(o, "/metadata/name")).collect()
    }

    fn workload(&self, path: &str, given: &WorkloadOverride, warnings: &mut Vec<String>) {
        let scaler = |o: &Value| is_autoscaler(o) && text(o, "/metadata/name") == autoscaler_of(&given.name);
        let scaler = self.objects.iter().any(|o| scaler(o));
        let Some(workload) = self.objects.iter().find(|o| workloads::matches(o, given)) else {
            if !(scaler && given.replicas.is_some()) {
                let known = self.objects.iter().filter(|o| workloads::is_overridable(o)).map(|o| key(o)).filter(|k| !k.is_empty());
                warnings.push(unknown(&format!("{path}.name"), "workload", &given.name, known));
            }
            return;
        };
        if given.replicas.is_some() && (text(workload, "/kind") == "Job" || scaled(&given.name) && !scaler) {
            warnings.push(format!("{path}.replicas: has no effect, for nothing but {} itself sets its replicas", given.name));
        }
        for (field, set) in [("version", given.version.is_some()), ("volumeMounts", !given.volume_mounts.is_empty())] {
            if set {
                warnings.push(format!("{path}.{field}: has no effect, as in the Go operator"));
            }
        }
        let known = || containers(workload).map(|c| text(c, "/name"));
        let places = [
            ("resources", given.resources.iter().map(|r| r.container.as_str()).collect::<Vec<_>>()),
            ("env", given.env.iter().map(|e| e.container.as_str()).collect()),
            ("readinessProbes", given.readiness_probes.iter().map(|p| p.container.as_str()).collect()),
            ("livenessProbes", given.liveness_probes.iter().map(|p| p.container.as_str()).collect()),
        ];
        for (field, given) in places {
            for (index, name) in given.into_iter().enumerate().filter(|(_, name)| !known().any(|k| k == *name)) {
                warnings.push(unknown(&format!("{path}.{field}[{index}].container"), "container of this workload", name, known()));
            }
        }
        for (list, field, probe) in
            [(&given.readiness_probes, "readinessProbes", "readinessProbe"), (&given.liveness_probes, "livenessProbes", "livenessProbe")]
        {
            for (index, given) in list.iter().enumerate().filter(|(_, p)| probes::settings(p).next().is_some()) {
                if containers(workload).any(|c| text(c, "/name") == given.container && c.get(probe).is_none()) {
                    warnings.push(format!("{path}.{field}[{index}]: container {} has no {probe} to adjust", given.container));
                }
            }
        }
    }

    fn by_name(&self, common: &CommonSpec, warnings: &mut Vec<String>) {
        let deployed: BTreeSet<_> = self.of_kind("Deployment").flat_map(containers).map(|c| text(c, "/name")).collect();
        for (index, given) in common.resources.iter().enumerate().filter(|(_, r)| !deployed.contains(r.container.as_str())) {
            warnings.push(unknown(&format!("spec.resources[{index}].container"), "container", &given.container, deployed.iter().copied()));
        }
        let known = self.names("Service");
        for (index, given) in common.services.iter().enumerate().filter(|(_, s)| !known.contains(s.name.as_str())) {
            warnings.push(unknown(&format!("spec.services[{index}].name"), "Service", &given.name, known.iter().copied()));
        }
        let known = self.names("PodDisruptionBudget");
        for (index, given) in common.pod_disruption_budgets.iter().enumerate() {
            let path = format!("spec.podDisruptionBudgets[{index}]");
            if !known.contains(given.name.as_str()) {
                warnings.push(unknown(&format!("{path}.name"), "PodDisruptionBudget", &given.name, known.iter().copied()));
            }
            for (field, set) in
                [("selector", given.selector.is_some()), ("unhealthyPodEvictionPolicy", given.unhealthy_pod_eviction_policy.is_some())]
            {
                if set {
                    warnings.push(format!("{path}.{field}: has no effect, as in the Go operator"));
                }
            }
        }
        let known = self.names("ConfigMap");
        for name in common.config.keys().filter(|n| !known.iter().any(|k| config::is_called(k, n))) {
            let short = known.iter().map(|k| k.strip_prefix("config-").unwrap_or(k));
            warnings.push(unknown(&format!("spec.config.{name}"), "ConfigMap", name, short));
        }
    }

    fn registry(&self, common: &CommonSpec, warnings: &mut Vec<String>) {
        let Some(registry) = common.registry.as_ref().filter(|r| !r.overrides.is_empty()) else { return };
        let mut known: BTreeSet<String> = self.names("Image").into_iter().map(str::to_owned).collect();
        for workload in self.objects.iter().filter(|o| is_workload(o)) {
            for container in containers(workload) {
                let name = text(container, "/name");
                known.extend([name.to_owned(), format!("{}/{name}", key(workload))]);
                let variables = container.get("env").and_then(Value::as_array).into_iter().flatten();
                known.extend(variables.map(|v| text(v, "/name").to_owned()));
            }
        }
        for name in registry.overrides.keys().filter(|n| !known.contains(*n)) {
            let what = "container, workload/container, environment variable or cached image";
            warnings.push(unknown(&format!("spec.registry.override.{name}"), what, name, known.iter().map(String::as_str)));
        }
    }
}

/// What a workload is called in a spec: a Job by the beginning of its name.
fn key(workload: &Value) -> &str {
    let generated = text(workload, "/metadata/generateName");
    if generated.is_empty() { text(workload, "/metadata/name") } else { generated }
}

fn containers(workload: &Value) -> impl Iterator<Item = &Value> {
    workload.pointer(CONTAINERS).and_then(Value::as_array).into_iter().flatten()
}

fn unknown<'k>(path: &str, what: &str, name: &str, known: impl Iterator<Item = &'k str>) -> String {
    let likeness = |k: &str| strsim::jaro_winkler(k, name);
    let nearest = known.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
    let nearest = nearest.map_or_else(|| "there is none at all".to_owned(), |n| format!("the nearest is \"{n}\""));
    format!("{path}: no {what} is called \"{name}\"; {nearest}")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn told(spec: &Value) -> Vec<String> {
        let objects = [
            json!({"kind": "Deployment", "metadata": {"name": "activator"}, "spec": {"template": {"spec": {"containers": [
                {"name": "activator", "env": [{"name": "QUEUE_IMAGE"}]}]}}}}),
            json!({"kind": "Job", "metadata": {"generateName": "migration-"}}),
            json!({"kind": "StatefulSet", "metadata": {"name": "kafka-source-dispatcher"}}),
            json!({"kind": "HorizontalPodAutoscaler", "metadata": {"name": "broker-filter-hpa"}}),
            json!({"kind": "Service", "metadata": {"name": "activator-service"}}),
            json!({"kind": "ConfigMap", "metadata": {"name": "config-features"}}),
            json!({"kind": "Image", "metadata": {"name": "queue-proxy"}}),
        ];
        let resource =
            json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing", "metadata": {"name": "a"}, "spec": spec});
        unmatched(&Knative::Serving(serde_json::from_value(resource).unwrap()), objects.each_ref().map(Packed::new).iter())
    }

    #[test]
    fn what_is_there_is_not_told() {
        let spec = json!({
            "workloads": [{"name": "activator", "env": [{"container": "activator"}]}, {"name": "migration-"}, {"name": "mt-broker-filter", "replicas": 2}],
            "services": [{"name": "activator-service"}],
            "config": {"features": {"a": "b"}, "config-features": {"a": "b"}},
            "resources": [{"container": "activator"}],
            "registry": {"override": {"activator": "a", "activator/activator": "a", "QUEUE_IMAGE": "a", "queue-proxy": "a"}},
        });
        assert!(told(&spec).is_empty(), "{:?}", told(&spec));
    }

    #[test]
    fn what_is_not_there_is_told_with_the_nearest() {
        for (spec, expected) in [
            (
                json!({"workloads": [{"name": "activater"}]}),
                "spec.workloads[0].name: no workload is called \"activater\"; the nearest is \"activator\"",
            ),
            (
                json!({"deployments": [{"name": "migration"}]}),
                "spec.deployments[0].name: no workload is called \"migration\"; the nearest is \"migration-\"",
            ),
            (
                json!({"workloads": [{"name": "activator", "livenessProbes": [{"container": "activ"}]}]}),
                "spec.workloads[0].livenessProbes[0].container: no container of this workload is called \"activ\"; the nearest is \"activator\"",
            ),
            (
                json!({"workloads": [{"name": "activator", "livenessProbes": [{"container": "activator", "periodSeconds": 1}]}]}),
                "spec.workloads[0].livenessProbes[0]: container activator has no livenessProbe to adjust",
            ),
            (
                json!({"workloads": [{"name": "activator", "version": "1"}]}),
                "spec.workloads[0].version: has no effect, as in the Go operator",
            ),
            (
                json!({"workloads": [{"name": "kafka-source-dispatcher", "replicas": 2}]}),
                "spec.workloads[0].replicas: has no effect, for nothing but kafka-source-dispatcher itself sets its replicas",
            ),
            (
                json!({"resources": [{"container": "activater"}]}),
                "spec.resources[0].container: no container is called \"activater\"; the nearest is \"activator\"",
            ),
            (
                json!({"services": [{"name": "activator"}]}),
                "spec.services[0].name: no Service is called \"activator\"; the nearest is \"activator-service\"",
            ),
            (
                json!({"podDisruptionBudgets": [{"name": "x"}]}),
                "spec.podDisruptionBudgets[0].name: no PodDisruptionBudget is called \"x\"; there is none at all",
            ),
            (json!({"config": {"feature": {}}}), "spec.config.feature: no ConfigMap is called \"feature\"; the nearest is \"features\""),
            (
                json!({"registry": {"override": {"QUEUE_IMAG": "a"}}}),
                "spec.registry.override.QUEUE_IMAG: no container, workload/container, environment variable or cached image is called \"QUEUE_IMAG\"; the nearest is \"QUEUE_IMAGE\"",
            ),
        ] {
            assert_eq!(told(&spec), [expected]);
        }
    }
}
