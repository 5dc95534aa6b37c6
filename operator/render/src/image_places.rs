//! The places of images in rendered objects, and the setting that reaches each of them.

use knative_operator_shared::api::Component;
use knative_operator_shared::syntax;
use serde_json::Value;

use super::images::{is_cached, pod_spec};
use super::jobs;
use knative_operator_objects::text;

/// Lists of containers in a Pod spec.
const LISTS: [&str; 3] = ["initContainers", "containers", "ephemeralContainers"];
/// Those of them that `spec.registry.override` reaches.
const REACHED: [&str; 2] = ["initContainers", "containers"];

/// An image in an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImagePlace {
    /// JSON pointer to it.
    pub path: String,
    /// The image, as the object has it.
    pub image: String,
    /// The setting that changes it.
    pub setting: ImageSetting,
}

/// The setting that changes an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageSetting {
    /// `spec.registry.override`, by this key.
    Override(String),
    /// `spec.registry.override`, by the name of an environment variable. It changes the variable in
    /// all containers.
    Variable(String),
    /// `spec.config`.
    Config {
        /// Name of the ConfigMap.
        map: String,
        /// Its key.
        key: String,
    },
    /// `spec.patches`.
    Patch,
}

/// The images in `object`, which was rendered for `version` of `component`: those of containers and
/// of the image cache, and each value of a variable, a ConfigMap or a field `image` that is one.
pub fn image_places(object: &Value, component: Component, version: &str) -> Vec<ImagePlace> {
    let workload = match (text(object, "/metadata/generateName"), text(object, "/kind")) {
        ("", "Job") => jobs::released_name(object, component, version),
        ("", _) => text(object, "/metadata/name"),
        (generated, _) => generated,
    };
    let mut search = Search { workload, pods: pod_spec(object), is_cached: is_cached(object), places: Vec::new() };
    match text(object, "/kind") {
        // Its descriptions have examples.
        "CustomResourceDefinition" => {}
        "ConfigMap" => search.config(object),
        _ => search.visit(object, ""),
    }
    search.places
}

/// The environment variables that `spec.registry.override` reaches in `object`, with their values;
/// `None` for those that have their value from elsewhere.
pub fn image_variables(object: &Value) -> Vec<(&str, Option<&str>)> {
    let Some(pod) = pod_spec(object).and_then(|pods| object.pointer(pods)) else { return Vec::new() };
    let containers = REACHED.iter().flat_map(|list| items(pod, list));
    let variables = containers.flat_map(|container| items(container, "env"));
    variables.map(|variable| (text(variable, "/name"), variable["value"].as_str())).collect()
}

fn items<'v>(value: &'v Value, key: &str) -> impl Iterator<Item = &'v Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

struct Search<'o> {
    /// Name of the object in overrides.
    workload: &'o str,
    /// JSON pointer to the Pod spec that overrides reach.
    pods: Option<&'static str>,
    is_cached: bool,
    places: Vec<ImagePlace>,
}

impl Search<'_> {
    fn config(&mut self, object: &Value) {
        for (key, value) in object["data"].as_object().into_iter().flatten().filter(|(key, _)| *key != "_example") {
            if let Some(image) = value.as_str().filter(|value| is_image(key, value)) {
                let setting = ImageSetting::Config { map: self.workload.to_owned(), key: key.clone() };
                self.add(below("/data", key), image, setting);
            }
        }
    }

    fn visit(&mut self, value: &Value, path: &str) {
        match value {
            Value::Array(items) => {
                items.iter().enumerate().for_each(|(index, item)| self.visit(item, &below(path, &index.to_string())));
            }
            Value::Object(fields) => {
                for (key, field) in fields {
                    let path = below(path, key);
                    match (key.as_str(), field) {
                        ("image", Value::String(image)) => self.image(value, path, image),
                        // A volume with the files of an image.
                        ("reference", Value::String(image)) if path.ends_with("/image/reference") => {
                            self.add(path, image, ImageSetting::Patch);
                        }
                        ("env", Value::Array(variables)) => self.variables(variables, &path),
                        _ => self.visit(field, &path),
                    }
                }
            }
            _ => {}
        }
    }

    /// Adds `image`, the field at `path` of `parent`.
    fn image(&mut self, parent: &Value, path: String, image: &str) {
        let container = path.strip_suffix("/image").unwrap_or_default();
        if self.is_cached && path == "/spec/image" {
            self.add(path, image, ImageSetting::Override(self.workload.to_owned()));
        } else if self.is_reached(container) {
            let key = format!("{}/{}", self.workload, text(parent, "/name"));
            self.add(path, image, ImageSetting::Override(key));
        } else if list_of(container).is_some() || is_image("image", image) {
            self.add(path, image, ImageSetting::Patch);
        }
    }

    /// Adds the images in `variables`, the list at `path`.
    fn variables(&mut self, variables: &[Value], path: &str) {
        let is_reached = path.strip_suffix("/env").is_some_and(|container| self.is_reached(container));
        for (index, variable) in variables.iter().enumerate() {
            let name = text(variable, "/name");
            if let Some(image) = variable["value"].as_str().filter(|value| is_image(name, value)) {
                let setting = if is_reached { ImageSetting::Variable(name.to_owned()) } else { ImageSetting::Patch };
                self.add(format!("{path}/{index}/value"), image, setting);
            }
        }
    }

    /// Whether overrides reach the container at `path`.
    fn is_reached(&self, path: &str) -> bool {
        list_of(path).is_some_and(|(pod, list)| Some(pod) == self.pods && REACHED.contains(&list))
    }

    fn add(&mut self, path: String, image: &str, setting: ImageSetting) {
        if !image.is_empty() {
            self.places.push(ImagePlace { path, image: image.to_owned(), setting });
        }
    }
}

/// The Pod spec and the list of containers that `path`, the place of a container, is in.
fn list_of(path: &str) -> Option<(&str, &str)> {
    let (list, _) = path.rsplit_once('/')?;
    list.rsplit_once('/').filter(|(_, name)| LISTS.contains(name))
}

/// The JSON pointer to `key` below `path`.
fn below(path: &str, key: &str) -> String {
    format!("{path}/{}", key.replace('~', "~0").replace('/', "~1"))
}

/// Whether `value` is an image, by its form: a reference with a digest, or with a host and a tag.
/// If `name` is called after an image, a path or a tag suffices.
fn is_image(name: &str, value: &str) -> bool {
    if syntax::image(value).is_some() {
        return false;
    }
    let name = name.to_ascii_lowercase();
    if name.ends_with("_image") || name.ends_with("-image") {
        return value.contains(['/', ':', '@']);
    }
    value.split_once('/').is_some_and(|(host, path)| {
        value.contains('@') || (path.contains(':') && (host.contains(['.', ':']) || host == "localhost"))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Path, image and setting of each place in `object`.
    fn places(object: &Value) -> Vec<(String, String, ImageSetting)> {
        let places = image_places(object, Component::Eventing, "1.22.1");
        places.into_iter().map(|place| (place.path, place.image, place.setting)).collect()
    }

    fn place(path: &str, image: &str, setting: ImageSetting) -> (String, String, ImageSetting) {
        (path.to_owned(), image.to_owned(), setting)
    }

    fn by_key(key: &str) -> ImageSetting {
        ImageSetting::Override(key.to_owned())
    }

    #[test]
    fn each_place_has_its_setting() {
        let digest = "sha256:0123456789abcdef0123456789abcdef";
        let adapter = format!("gcr.io/x/receive_adapter@{digest}");
        let pod = json!({
            "initContainers": [{"name": "first", "image": "a/first"}],
            "containers": [{"name": "c", "image": "nginx", "env": [
                {"name": "GH_RA_IMAGE", "value": adapter},
                {"name": "LOG_IMAGE", "valueFrom": {"configMapKeyRef": {"name": "m", "key": "k"}}},
                {"name": "IMAGE_PULL_POLICY", "value": "Always"},
                {"name": "ADDRESS", "value": "kourier.knative-serving:80"},
            ]}],
            "volumes": [{"name": "v", "image": {"reference": "a.io/files:1", "pullPolicy": "Always"}}],
        });
        let deployment = json!({"kind": "Deployment", "metadata": {"name": "w"}, "spec": {"template": {"spec": pod}}});
        let spec = "/spec/template/spec";
        let expected = vec![
            place(&format!("{spec}/containers/0/env/0/value"), &adapter, ImageSetting::Variable("GH_RA_IMAGE".into())),
            place(&format!("{spec}/containers/0/image"), "nginx", by_key("w/c")),
            place(&format!("{spec}/initContainers/0/image"), "a/first", by_key("w/first")),
            place(&format!("{spec}/volumes/0/image/reference"), "a.io/files:1", ImageSetting::Patch),
        ];
        let mut found = places(&deployment);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        assert_eq!(found, expected);
        assert_eq!(image_variables(&deployment)[..2], [("GH_RA_IMAGE", Some(adapter.as_str())), ("LOG_IMAGE", None)]);

        let template = json!({"template": {"spec": {"containers": [{"name": "c", "image": "a/b:1"}]}}});
        let cron = json!({"kind": "CronJob", "metadata": {"name": "w"}, "spec": {"jobTemplate": {"spec": template}}});
        let path = "/spec/jobTemplate/spec/template/spec/containers/0/image";
        assert_eq!(places(&cron), [place(path, "a/b:1", by_key("w/c"))]);
        let pod = json!({"kind": "Pod", "metadata": {"name": "w"}, "spec": template["template"]["spec"]});
        assert_eq!(places(&pod), [place("/spec/containers/0/image", "a/b:1", ImageSetting::Patch)]);
    }

    #[test]
    fn jobs_have_the_names_of_the_release() {
        let job = |metadata: Value| {
            let template = json!({"spec": {"containers": [{"name": "c", "image": "a/b:1"}]}});
            let mut job = json!({"kind": "Job", "metadata": metadata, "spec": {"template": template}});
            let name = jobs::name(&job, Component::Eventing, "1.22.1");
            job["metadata"]["name"] = json!(name);
            places(&job).into_iter().map(|(_, _, setting)| setting).collect::<Vec<_>>()
        };
        assert_eq!(job(json!({"name": "post-install"})), [by_key("post-install/c")]);
        assert_eq!(job(json!({"generateName": "migrate-"})), [by_key("migrate-/c")]);
    }

    #[test]
    fn cached_images_and_config_maps_have_images() {
        let cached = json!({"apiVersion": "caching.internal.knative.dev/v1alpha1", "kind": "Image",
            "metadata": {"name": "queue-proxy"}, "spec": {"image": "a/queue"}});
        assert_eq!(places(&cached), [place("/spec/image", "a/queue", by_key("queue-proxy"))]);
        let config = json!({"kind": "ConfigMap", "metadata": {"name": "config-deployment"}, "data": {
            "queue-sidecar-image": "queue:v1", "log-sink": "gcr.io/log:1", "other": "http://a.io/b:1", "path": "a/b:80",
            "_example": "gcr.io/example:1"}});
        let entry = |key: &str| ImageSetting::Config { map: "config-deployment".into(), key: key.into() };
        let mut found = places(&config);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let expected = [
            place("/data/log-sink", "gcr.io/log:1", entry("log-sink")),
            place("/data/queue-sidecar-image", "queue:v1", entry("queue-sidecar-image")),
        ];
        assert_eq!(found, expected);
        let definition = json!({"kind": "CustomResourceDefinition", "spec": {"image": "a.io/b:1"}});
        assert!(places(&definition).is_empty());
    }

    #[test]
    fn images_of_other_kinds_are_found_by_their_form() {
        let service = json!({"kind": "Service", "metadata": {"name": "s", "annotations": {"a/image": "text"}},
            "spec": {"template": {"spec": {"containers": [{"image": "app"}]}}, "image": "a.io/b:1", "more": {"image": "b"}}});
        let mut found = places(&service);
        found.sort_by(|a, b| a.0.cmp(&b.0));
        let expected = [
            place("/spec/image", "a.io/b:1", ImageSetting::Patch),
            place("/spec/template/spec/containers/0/image", "app", ImageSetting::Patch),
        ];
        assert_eq!(found, expected);
    }
}
