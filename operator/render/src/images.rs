//! `spec.registry`: the sources of images.

use knative_operator_shared::api::Registry;
use serde_json::{Value, json};

use super::context::Context;
use super::error::TransformError;
use super::pod::{add_named, is_workload};
use knative_operator_objects::text;

/// Sets the images of containers, environment variables that name images, the images of Knative's
/// image cache, and the pull Secrets.
pub fn replace(object: &mut Value, cx: &Context<'_>) -> Result<(), TransformError> {
    let Some(registry) = &cx.resource.common().registry else { return Ok(()) };
    if let Some(pods) = pod_spec(object) {
        set_workload_images(object, pods, registry);
    } else if is_cached(object) {
        let name = text(object, "/metadata/name").to_owned();
        let given = registry.overrides.get(&name).cloned();
        if let Some(image) = given.or_else(|| default_image(registry, text(object, "/spec/image"), &name)) {
            object["spec"]["image"] = json!(image);
        }
        add_named(&mut object["spec"], "imagePullSecrets", &registry.image_pull_secrets);
    }
    Ok(())
}

/// JSON pointer to the Pod spec of a workload, if overrides reach its images.
pub fn pod_spec(object: &Value) -> Option<&'static str> {
    if is_workload(object) {
        return Some("/spec/template/spec");
    }
    (text(object, "/kind") == "CronJob").then_some("/spec/jobTemplate/spec/template/spec")
}

/// Whether `object` is an image of Knative's image cache.
pub fn is_cached(object: &Value) -> bool {
    text(object, "/apiVersion") == "caching.internal.knative.dev/v1alpha1" && text(object, "/kind") == "Image"
}

/// `pods`: JSON pointer to the Pod spec.
fn set_workload_images(object: &mut Value, pods: &str, registry: &Registry) {
    let generated = text(object, "/metadata/generateName");
    let key = if generated.is_empty() { text(object, "/metadata/name") } else { generated }.to_owned();
    let Some(pod) = object.pointer_mut(pods).filter(|pod| pod.is_object()) else { return };
    for list in ["initContainers", "containers"] {
        for container in pod.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            set_container_images(container, &key, registry);
        }
    }
    add_named(pod, "imagePullSecrets", &registry.image_pull_secrets);
}

/// Sets the image of a container of the workload `key`, and environment variables that name images.
fn set_container_images(container: &mut Value, key: &str, registry: &Registry) {
    let name = text(container, "/name");
    let given = registry.overrides.get(&format!("{key}/{name}")).or_else(|| registry.overrides.get(name)).cloned();
    if let Some(image) = given.or_else(|| default_image(registry, text(container, "/image"), name)) {
        container["image"] = json!(image);
    }
    for variable in container.get_mut("env").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(image) = registry.overrides.get(text(variable, "/name")) {
            *variable = json!({"name": variable["name"], "value": image});
        }
    }
}

/// The default image in place of `image`, for the container `name`.
fn default_image(registry: &Registry, image: &str, name: &str) -> Option<String> {
    let template = registry.default.as_deref().filter(|d| !d.is_empty())?;
    Some(template.replace("${NAME}", base_name(image).unwrap_or(name)))
}

/// Last part of an image's path, without tag and digest; `None` if it has no path.
fn base_name(image: &str) -> Option<&str> {
    let (_, last) = image.rsplit_once('/')?;
    // As in the Go operator, the digest is split off at its colon.
    let Some((name, _)) = last.split_once(':') else { return Some(last) };
    Some(name.split_once('@').map_or(name, |(name, _)| name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_containers_get_their_image() {
        let registry: Registry =
            serde_json::from_value(json!({"default": "r/${NAME}:1", "override": {"w/c": "r/own:2"}})).unwrap();
        let pod = json!({"initContainers": [{"name": "i", "image": "a/first:1"}], "containers": [{"name": "c", "image": "a/c:1"}]});
        let mut job = json!({"kind": "CronJob", "metadata": {"name": "w"}, "spec": {"jobTemplate": {"spec": {"template": {"spec": pod}}}}});
        set_workload_images(&mut job, "/spec/jobTemplate/spec/template/spec", &registry);
        let pod = &job["spec"]["jobTemplate"]["spec"]["template"]["spec"];
        assert_eq!(
            (&pod["initContainers"][0]["image"], &pod["containers"][0]["image"]),
            (&json!("r/first:1"), &json!("r/own:2"))
        );
    }

    #[test]
    fn base_name_is_last_path_segment() {
        for (image, name) in [
            ("a/b/queue@sha256:x", Some("queue")),
            ("a/b/queue:v1", Some("queue")),
            ("a/b/queue:v1@sha256:x", Some("queue")),
            ("a:5000/queue", Some("queue")),
            ("a/queue@digest", Some("queue@digest")),
            ("queue:v1", None),
            ("", None),
        ] {
            assert_eq!(base_name(image), name, "{image}");
        }
    }
}
