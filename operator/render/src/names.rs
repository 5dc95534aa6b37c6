//! Names in a release that a spec may refer to.

use std::sync::Arc;

use knative_operator_rules::{Container, Identities, ReleaseNames, VERSION_PLACEHOLDER, Workload};
use knative_operator_shared::api::Component;
use serde_json::Value;

use super::autoscaling::{is_autoscaled, is_autoscaler};
use super::jobs;
use super::pod::{CONTAINERS, is_workload};
use super::workloads;
use knative_operator_objects::CompactObject;
use knative_operator_objects::text;

/// The names in `objects`, a release.
pub fn names<'o>(objects: impl Iterator<Item = &'o CompactObject>) -> ReleaseNames {
    let mut names = ReleaseNames::default();
    objects.filter(|o| o.definition().is_none()).for_each(|object| add(&mut names, &object.parse()));
    names
}

/// The names in a release of `component` with `parts`, each with its name.
pub fn release_names(component: Component, parts: &[(String, Arc<Vec<CompactObject>>)]) -> ReleaseNames {
    let mut names = names(parts.iter().flat_map(|(_, objects)| objects.iter()));
    let identities = |objects: &[CompactObject]| identities(component, objects.iter());
    names.objects = parts.iter().map(|(part, objects)| (part.clone(), identities(objects))).collect();
    names
}

/// The identities of `objects`, a part of a release of `component`.
fn identities<'o>(component: Component, objects: impl Iterator<Item = &'o CompactObject>) -> Identities {
    let mut identities = Identities::new();
    for object in objects {
        let (gvk, id) = (object.gvk(), object.id());
        let name = match gvk.kind.as_str() {
            "Job" => jobs::name(&object.parse(), component, VERSION_PLACEHOLDER),
            _ => id.name.clone(),
        };
        identities.entry(format!("{} {}", gvk.api_version(), gvk.kind)).or_default().insert(name);
    }
    identities
}

fn add(names: &mut ReleaseNames, object: &Value) {
    let name = text(object, "/metadata/name").to_owned();
    match text(object, "/kind") {
        "Service" => drop(names.services.insert(name)),
        "PodDisruptionBudget" => drop(names.budgets.insert(name)),
        "Image" => drop(names.images.insert(name)),
        "ConfigMap" => names.configs.entry(name).or_default().extend(keys(object)),
        _ if is_autoscaler(object) => drop(names.autoscalers.insert(name)),
        kind if is_workload(object) => {
            let generated = text(object, "/metadata/generateName");
            let key = if generated.is_empty() { name } else { generated.to_owned() };
            let workload = names.workloads.entry(key.clone()).or_default();
            workload.overridable |= workloads::is_overridable(object);
            workload.replicas |= kind != "Job" && !is_autoscaled(&key);
            for container in object.pointer(CONTAINERS).and_then(Value::as_array).into_iter().flatten() {
                add_container(workload, container);
            }
        }
        _ => {}
    }
}

fn add_container(workload: &mut Workload, given: &Value) {
    let container: &mut Container = workload.containers.entry(text(given, "/name").to_owned()).or_default();
    let variables = given.get("env").and_then(Value::as_array).into_iter().flatten();
    container.env.extend(variables.map(|v| text(v, "/name").to_owned()));
    container.readiness |= given.get("readinessProbe").is_some();
    container.liveness |= given.get("livenessProbe").is_some();
}

/// The keys of a ConfigMap, and the keys that its `_example` documents at the start of a line,
/// commented out or not.
fn keys(map: &Value) -> impl Iterator<Item = String> {
    let data = || map["data"].as_object().into_iter().flatten();
    let own = data().map(|(key, _)| key.clone()).filter(|key| key != "_example");
    let examples = data().filter(|(key, _)| *key == "_example").filter_map(|(_, text)| text.as_str());
    let explained = examples.flat_map(str::lines).filter_map(|line| {
        let (key, _) = line.strip_prefix("# ").unwrap_or(line).split_once(':')?;
        let is_key =
            !key.is_empty() && key.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b"-_.".contains(&b));
        is_key.then(|| key.to_owned())
    });
    own.chain(explained).collect::<Vec<_>>().into_iter()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_of_a_release_are_collected() {
        let objects = [
            json!({"kind": "Deployment", "metadata": {"name": "controller"}, "spec": {"template": {"spec": {"containers": [
                {"name": "main", "env": [{"name": "QUEUE_IMAGE"}], "livenessProbe": {}}]}}}}),
            json!({"kind": "Deployment", "metadata": {"name": "activator"}}),
            json!({"kind": "Job", "metadata": {"generateName": "migration-"}}),
            json!({"kind": "Job", "metadata": {"name": "fixed"}}),
            json!({"kind": "HorizontalPodAutoscaler", "metadata": {"name": "broker-filter-hpa"}}),
            json!({"kind": "Service", "metadata": {"name": "activator-service"}}),
            json!({"kind": "ConfigMap", "metadata": {"name": "config-gc"}, "data": {"own": "1", "_example": "# Text: of it.\n# a-key: 1\nb.key: |\n  c: d\n"}}),
            json!({"kind": "Image", "metadata": {"name": "queue-proxy"}}),
        ];
        let names = names(objects.each_ref().map(CompactObject::new).iter());
        let (controller, job) = (&names.workloads["controller"], &names.workloads["migration-"]);
        assert!(
            controller.overridable
                && controller.replicas
                && controller.containers["main"].liveness
                && !controller.containers["main"].readiness
        );
        assert!(
            job.overridable
                && !job.replicas
                && !names.workloads["fixed"].overridable
                && !names.workloads["activator"].replicas
        );
        assert_eq!(names.configs["config-gc"].iter().collect::<Vec<_>>(), ["a-key", "b.key", "own"]);
        assert!(names.images.contains("queue-proxy") && names.services.contains("activator-service"));
    }
}
