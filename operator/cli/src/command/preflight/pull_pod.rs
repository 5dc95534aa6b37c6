//! The Pod that pulls images, and what its status tells about them. Pure.

use jiff::Timestamp;
use knative_operator_objects::cause::CauseKind;
use knative_operator_objects::plan::Plan;
use knative_operator_objects::pod::{ContainerStatus, Pod, Status};
use knative_operator_objects::pod_cause::of_pod;
use serde_json::{Map, Value, json};

use crate::images::registry_of;

/// Name of the Pod, without its suffix, and value of its label.
pub const NAME: &str = "knative-operator-preflight";
/// Maximum number of images, each of another registry.
const MAX_IMAGES: usize = 8;
/// No image has it: that it can't be executed shows that the image was pulled.
const COMMAND: &str = "/knative-operator-preflight-only-pulls";
/// Seconds after which the kubelet ends a Pod that nobody deletes.
const ACTIVE_SECONDS: u64 = 300;
/// Where Pod specs are: of a workload, and of a CronJob.
const POD_SPECS: [&str; 2] = ["/spec/template/spec", "/spec/jobTemplate/spec/template/spec"];
/// ConfigMap and key with the image of the sidecar of Knative Services.
const SIDECAR: (&str, &str) = ("config-deployment", "queue-sidecar-image");
/// Start of the names of containers that pull an image in any case.
const PULL: &str = "pull-";
/// Start of the names of containers that run if the node has their image.
const PRESENT: &str = "present-";
/// Fields that decide on which nodes Pods run.
const PLACEMENT: [&str; 4] = ["nodeSelector", "tolerations", "schedulerName", "runtimeClassName"];

/// What a Pod pulls, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pull {
    /// The first image of each registry, and that of the sidecar of Knative Services.
    images: Vec<Image>,
    /// Pull Secrets of all workloads.
    secrets: Vec<Value>,
    /// The placement of the workload with the first image.
    placement: Map<String, Value>,
}

/// An image.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Image {
    name: String,
    /// Whether its containers have the `imagePullPolicy` Never.
    is_preloaded: bool,
}

impl Pull {
    /// For the workloads of `plan`; `None` if it has none.
    pub fn of(plan: &Plan) -> Option<Self> {
        let specs = plan.items().iter().filter(|item| matches!(item.id.group.as_str(), "apps" | "batch"));
        let specs: Vec<Value> = specs.filter_map(|item| pod_spec(&plan.object_of(item)).cloned()).collect();
        let mut images: Vec<Image> = Vec::new();
        for image in specs.iter().flat_map(images_in) {
            let is_like = |other: &Image| {
                other.is_preloaded == image.is_preloaded && registry_of(&other.name) == registry_of(&image.name)
            };
            if images.len() < MAX_IMAGES && !images.iter().any(is_like) {
                images.push(image);
            }
        }
        // No workload has it, and settings for a registry miss it easily.
        if let Some(name) = sidecar(plan).filter(|name| !images.iter().any(|image| image.name == *name)) {
            images.push(Image { name, is_preloaded: false });
        }
        let first = specs.iter().find(|spec| images_in(spec).next().is_some())?;
        let placement = PLACEMENT.iter().filter_map(|field| Some(((*field).to_owned(), first.get(*field)?.clone())));
        let mut placement: Map<String, Value> = placement.collect();
        if let Some(affinity) = first.pointer("/affinity/nodeAffinity") {
            placement.insert("affinity".to_owned(), json!({"nodeAffinity": affinity}));
        }
        let mut secrets: Vec<Value> = Vec::new();
        for secret in specs.iter().flat_map(|spec| spec["imagePullSecrets"].as_array().into_iter().flatten()) {
            if !secrets.contains(secret) {
                secrets.push(secret.clone());
            }
        }
        Some(Self { images, secrets, placement })
    }

    /// Whether it needs pull Secrets, which are in the namespace of the installation.
    pub fn has_secrets(&self) -> bool {
        !self.secrets.is_empty()
    }

    /// The images, for people.
    pub fn images(&self) -> String {
        self.images.iter().map(|image| image.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The Pod `name`, which Pod Security admits by its strictest standard.
    pub fn pod(&self, namespace: &str, name: &str) -> Value {
        let few = json!({"cpu": "10m", "memory": "16Mi"});
        let security = json!({"allowPrivilegeEscalation": false, "readOnlyRootFilesystem": true, "capabilities": {"drop": ["ALL"]}});
        let container = |name: String, image: &Image, policy: &str| {
            json!({"name": name, "image": image.name, "imagePullPolicy": policy, "command": [COMMAND],
                "resources": {"requests": few, "limits": few}, "securityContext": security})
        };
        // A node that has an image also tells whether it can pull it, as a new node has to.
        let containers = self.images.iter().enumerate().flat_map(|(index, image)| {
            let (pull, present) = (format!("{PULL}{index}"), format!("{PRESENT}{index}"));
            if image.is_preloaded {
                return vec![container(present, image, "Never")];
            }
            vec![container(pull, image, "Always"), container(present, image, "IfNotPresent")]
        });
        let mut spec = json!({
            "automountServiceAccountToken": false,
            "enableServiceLinks": false,
            "restartPolicy": "Never",
            "activeDeadlineSeconds": ACTIVE_SECONDS,
            // Not the user: each cluster may have its own numbers.
            "securityContext": {"runAsNonRoot": true, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": containers.collect::<Vec<_>>(),
        });
        for (field, value) in &self.placement {
            spec[field.as_str()] = value.clone();
        }
        if self.has_secrets() {
            spec["imagePullSecrets"] = json!(self.secrets);
        }
        let meta = json!({"name": name, "namespace": namespace, "labels": {"app.kubernetes.io/name": NAME}});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})
    }
}

fn pod_spec(object: &Value) -> Option<&Value> {
    POD_SPECS.iter().find_map(|pointer| object.pointer(pointer)).filter(|spec| spec.is_object())
}

/// The images of the containers in the Pod spec `spec`.
fn images_in(spec: &Value) -> impl Iterator<Item = Image> {
    let lists = ["initContainers", "containers"];
    let containers =
        lists.into_iter().flat_map(move |list| spec.get(list).and_then(Value::as_array).into_iter().flatten());
    containers.filter_map(|container| {
        let name = container.get("image")?.as_str().filter(|image| !image.is_empty())?.to_owned();
        Some(Image { name, is_preloaded: container["imagePullPolicy"] == "Never" })
    })
}

/// The image of the sidecar of Knative Services in `plan`.
fn sidecar(plan: &Plan) -> Option<String> {
    let (map, key) = SIDECAR;
    let item = plan.items().iter().find(|item| item.id.kind == "ConfigMap" && item.id.name == map)?;
    let image = plan.object_of(item)["data"][key].as_str()?.trim().to_owned();
    (!image.is_empty()).then_some(image)
}

/// What the status of a Pod tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Not all images are pulled yet, for this reason.
    Waiting(String),
    /// All images are pulled.
    Pulled,
    /// The node has all images, but can't pull some of them, for these reasons.
    Present(Vec<String>),
    /// Some can't be pulled, for these reasons.
    Failed(Vec<String>),
}

/// What `pod`, whose containers are those of [`Pull::pod`], tells.
pub fn progress(pod: &Pod, now: Timestamp) -> Progress {
    let status = |name: &str| pod.status.container_statuses.iter().find(|status| status.name == name);
    let outcomes: Vec<(&str, Option<Result<(), String>>)> = (pod.spec.containers.iter())
        .map(|container| {
            let name = container.name.as_str();
            (name, status(name).and_then(|status| of_container(pod, status, now)))
        })
        .collect();
    let why =
        || of_pod(pod, now).map_or_else(String::new, |cause| cause.sentence(std::slice::from_ref(&cause.subject)));
    if outcomes.iter().any(|(_, outcome)| outcome.is_none()) {
        // The node rejected the Pod.
        let is_over = pod.status.phase == "Failed" && !pod.status.reason.is_empty();
        return if is_over { Progress::Failed(vec![why()]) } else { Progress::Waiting(why()) };
    }
    // The other container with the image of the one called `name`.
    let other = |name: &str, from: &str, to: &str| {
        let other = format!("{to}{}", name.strip_prefix(from)?);
        outcomes.iter().find(|(name, _)| *name == other).and_then(|(_, outcome)| outcome.as_ref())
    };
    let (mut present, mut refused) = (Vec::new(), Vec::new());
    for (name, outcome) in &outcomes {
        let Some(Err(why)) = outcome else { continue };
        match (other(name, PULL, PRESENT), other(name, PRESENT, PULL)) {
            (Some(Ok(())), _) => present.push(why.clone()),
            // The same, or the node had no time to pull it again.
            (_, Some(_)) => {}
            _ => refused.push(why.clone()),
        }
    }
    if !refused.is_empty() {
        Progress::Failed(refused)
    } else if present.is_empty() {
        Progress::Pulled
    } else {
        Progress::Present(present)
    }
}

/// Whether the image of a container was pulled; `None` if that is not known yet.
fn of_container(pod: &Pod, container: &ContainerStatus, now: Timestamp) -> Option<Result<(), String>> {
    if let Some(waiting) = &container.state.waiting {
        if matches!(waiting.reason.as_str(), "" | "ContainerCreating" | "PodInitializing") {
            return None;
        }
        let status = Status { container_statuses: vec![container.clone()], ..pod.status.clone() };
        let cause = of_pod(&Pod { status, ..pod.clone() }, now)?;
        let is_of_image = matches!(cause.kind, CauseKind::Image | CauseKind::ImageName);
        // Everything else comes after the pull.
        return Some(if is_of_image { Err(cause.sentence(std::slice::from_ref(&cause.subject))) } else { Ok(()) });
    }
    if let Some(ended) = &container.state.terminated {
        return (ended.reason != "ContainerStatusUnknown").then_some(Ok(()));
    }
    container.state.running.as_ref().map(|_| Ok(()))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use knative_operator_objects::plan::Rendered;
    use knative_operator_objects::{CompactObject, Owner};
    use knative_operator_shared::api::{Knative, KnativeServing};

    use super::*;

    fn workload(kind: &str, pod: &Value) -> Value {
        json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": kind.to_lowercase(), "namespace": "n"},
            "spec": {"template": {"spec": pod}}})
    }

    fn pull(objects: &[Value]) -> Option<Pull> {
        let owner = Owner::of(&Knative::Serving(KnativeServing::default()), "");
        let rendered = Rendered::new(objects.iter().map(CompactObject::new).collect());
        Pull::of(&Plan::new(Arc::new(rendered), &owner))
    }

    #[test]
    fn pod_pulls_an_image_of_each_registry_with_all_secrets() {
        let first = json!({"nodeSelector": {"disk": "fast"}, "imagePullSecrets": [{"name": "a"}], "serviceAccountName": "controller",
            "affinity": {"nodeAffinity": {"x": 1}, "podAffinity": {"y": 2}},
            "initContainers": [{"name": "i", "image": "gcr.io/a/i:1"}], "containers": [{"name": "c", "image": "gcr.io/a/c:1"}]});
        let second = json!({"imagePullSecrets": [{"name": "a"}, {"name": "b"}],
            "containers": [{"name": "c", "image": "envoyproxy/envoy:v1"}, {"name": "d", "image": "docker.io/library/d"}]});
        let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "m", "namespace": "n"}, "data": {"image": "quay.io/x:1"}});
        assert_eq!(pull(std::slice::from_ref(&map)), None);
        let found = pull(&[map, workload("Deployment", &first), workload("StatefulSet", &second)]).unwrap();
        assert_eq!(found.images(), "gcr.io/a/i:1, envoyproxy/envoy:v1");
        assert_eq!(containers(&found).len(), 4);
        assert!(found.has_secrets());
        let pod = found.pod("n", "p");
        let spec = &pod["spec"];
        assert_eq!(spec["imagePullSecrets"], json!([{"name": "a"}, {"name": "b"}]));
        assert_eq!(
            (&spec["nodeSelector"], &spec["affinity"]),
            (&json!({"disk": "fast"}), &json!({"nodeAffinity": {"x": 1}}))
        );
        assert!(spec.get("serviceAccountName").is_none() && spec["automountServiceAccountToken"] == false, "{spec}");
        let container = &spec["containers"][2];
        assert_eq!(
            (&container["image"], &container["imagePullPolicy"]),
            (&json!("envoyproxy/envoy:v1"), &json!("Always"))
        );
        assert_eq!(container["securityContext"]["capabilities"], json!({"drop": ["ALL"]}));
        assert_eq!(spec["securityContext"]["runAsNonRoot"], true);
        assert!(serde_json::from_value::<k8s_openapi::api::core::v1::Pod>(pod).is_ok());
        let public = pull(&[workload("Deployment", &json!({"containers": [{"name": "c", "image": "a/c"}]}))]).unwrap();
        assert!(!public.has_secrets() && public.pod("n", "p")["spec"].get("imagePullSecrets").is_none());
    }

    /// Name, image and policy of each container.
    fn containers(pull: &Pull) -> Vec<[String; 3]> {
        let pod = pull.pod("n", "p");
        let text = |container: &Value, field: &str| container[field].as_str().unwrap_or_default().to_owned();
        let all = pod["spec"]["containers"].as_array().unwrap();
        all.iter().map(|one| ["name", "image", "imagePullPolicy"].map(|field| text(one, field))).collect()
    }

    #[test]
    fn sidecar_and_preloaded_images_are_tried() {
        let pod = json!({"containers": [{"name": "a", "image": "gcr.io/a:1"},
            {"name": "b", "image": "gcr.io/b:1", "imagePullPolicy": "Never"}, {"name": "c", "image": "gcr.io/c:1"}]});
        let config = |image: &str| {
            json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "config-deployment", "namespace": "n"},
                "data": {"queue-sidecar-image": image}})
        };
        let of = |image: &str| containers(&pull(&[config(image), workload("Deployment", &pod)]).unwrap());
        let expected = [
            ["pull-0", "gcr.io/a:1", "Always"],
            ["present-0", "gcr.io/a:1", "IfNotPresent"],
            ["present-1", "gcr.io/b:1", "Never"],
        ];
        assert_eq!(of(""), expected);
        assert_eq!(of("gcr.io/a:1"), expected);
        let sidecar = [["pull-2", "gcr.io/queue:1", "Always"], ["present-2", "gcr.io/queue:1", "IfNotPresent"]];
        assert_eq!(of("gcr.io/queue:1"), [&expected[..], &sidecar].concat());
    }

    #[test]
    fn image_that_the_node_has_but_cannot_pull_is_no_failure() {
        let ended =
            json!({"terminated": {"exitCode": 128, "reason": "StartError", "message": "exec: \"/x\": no such file"}});
        let refused = json!({"waiting": {"reason": "ErrImagePull", "message": "r.io/a:1: not found"}});
        let never = json!({"waiting": {"reason": "ErrImageNeverPull", "message": "not present"}});
        let text = "cannot pull image \"r.io/a:1\": not found".to_owned();
        let absent = "cannot pull image \"r.io/a:1\": it is not on the node, and imagePullPolicy is Never".to_owned();
        for (states, expected) in [
            (vec![("pull-0", &ended), ("present-0", &ended)], Progress::Pulled),
            (vec![("pull-0", &refused), ("present-0", &ended)], Progress::Present(vec![text.clone()])),
            (vec![("pull-0", &refused), ("present-0", &refused)], Progress::Failed(vec![text.clone()])),
            (vec![("pull-0", &ended), ("present-0", &refused)], Progress::Pulled),
            (vec![("present-0", &ended)], Progress::Pulled),
            (vec![("present-0", &never)], Progress::Failed(vec![absent])),
            (
                vec![("pull-0", &refused), ("present-0", &ended), ("pull-1", &refused), ("present-1", &refused)],
                Progress::Failed(vec![text]),
            ),
        ] {
            let states: Vec<(String, Value)> =
                states.into_iter().map(|(name, state)| (name.to_owned(), state.clone())).collect();
            assert_eq!(named(&json!({}), &states), expected, "{states:?}");
        }
    }

    fn at() -> Timestamp {
        "2026-01-01T00:01:00Z".parse().unwrap()
    }

    /// What a Pod tells whose containers that pull have `states`.
    fn tells(phase: &Value, states: &[Value]) -> Progress {
        let states: Vec<(String, Value)> =
            states.iter().enumerate().map(|(index, state)| (format!("{PULL}{index}"), state.clone())).collect();
        named(phase, &states)
    }

    /// What a Pod tells whose containers have these names and states.
    fn named(phase: &Value, states: &[(String, Value)]) -> Progress {
        let containers: Vec<Value> =
            states.iter().map(|(name, _)| json!({"name": name, "image": "r.io/a:1"})).collect();
        let statuses: Vec<Value> = (states.iter())
            .filter(|(_, state)| !state.is_null())
            .map(|(name, state)| json!({"name": name, "ready": false, "restartCount": 0, "state": state}))
            .collect();
        let mut status =
            json!({"phase": "Pending", "containerStatuses": statuses, "startTime": "2026-01-01T00:00:55Z"});
        for (field, value) in phase.as_object().into_iter().flatten() {
            status[field.as_str()] = value.clone();
        }
        let meta = json!({"name": "pull-images", "uid": "7f0c", "creationTimestamp": "2026-01-01T00:00:55Z"});
        let pod = json!({"metadata": meta, "spec": {"nodeName": "node-1", "containers": containers}, "status": status});
        progress(&serde_json::from_value(pod).unwrap(), at())
    }

    #[test]
    fn states_of_containers_tell_whether_images_were_pulled() {
        let waiting = |reason: &str, message: &str| json!({"waiting": {"reason": reason, "message": message}});
        let ended = |reason: &str| json!({"terminated": {"exitCode": 128, "reason": reason, "message": "exec: \"/x\": no such file"}});
        let none = json!({});
        for good in [
            ended("StartError"),
            ended("ContainerCannotRun"),
            waiting("RunContainerError", "exec: \"/x\": no such file"),
            waiting("CreateContainerConfigError", "container has runAsNonRoot and image will run as root"),
            json!({"running": {"startedAt": "2026-01-01T00:00:59Z"}}),
        ] {
            assert_eq!(tells(&none, std::slice::from_ref(&good)), Progress::Pulled, "{good}");
            assert_eq!(tells(&json!({"phase": "Failed"}), std::slice::from_ref(&good)), Progress::Pulled, "{good}");
        }
        let not_found = waiting(
            "ErrImagePull",
            "rpc error: code = NotFound desc = failed to pull and unpack image \"r.io/a:1\": failed to resolve reference \"r.io/a:1\": r.io/a:1: not found",
        );
        let expected = Progress::Failed(vec!["cannot pull image \"r.io/a:1\": not found".to_owned()]);
        assert_eq!(tells(&none, &[ended("StartError"), not_found.clone()]), expected);
        let backing_off =
            waiting("ImagePullBackOff", "Back-off pulling image \"r.io/a:1\": ErrImagePull: r.io/a:1: not found");
        assert_eq!(tells(&none, &[backing_off]), expected);
        // Until all are known.
        for unknown in [waiting("ContainerCreating", ""), ended("ContainerStatusUnknown"), Value::Null] {
            let found = tells(&none, &[not_found.clone(), unknown]);
            assert!(matches!(found, Progress::Waiting(_)), "{found:?}");
        }
    }

    #[test]
    fn pod_without_a_node_waits_and_a_rejected_one_has_failed() {
        let refused = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient cpu."}]});
        let expected = "no node fits: 0/1 nodes are available: 1 Insufficient cpu".to_owned();
        assert_eq!(tells(&refused, &[Value::Null]), Progress::Waiting(expected));
        let rejected = json!({"phase": "Failed", "reason": "OutOfpods", "message": "too many"});
        let found = tells(&rejected, &[Value::Null]);
        assert!(matches!(&found, Progress::Failed(why) if why[0].contains("OutOfpods")), "{found:?}");
    }
}
