//! The settings of a resource with which all its images come from a mirror.

use std::collections::{BTreeMap, BTreeSet};

use knative_operator_objects::{ObjectId, text};
use knative_operator_render::{ImagePlace, ImageSetting, image_variables};
use knative_operator_rules::short;
use knative_operator_shared::api::{Knative, Patch, PatchTarget, PatchType, ResourcePatch};
use knative_operator_shared::version::Version;
use serde_json::{Value, json};

use super::mirror::Mirror;

/// A rendered object, and its images.
#[derive(Clone, Debug)]
pub struct Found {
    /// The object.
    pub object: Value,
    /// Its images.
    pub places: Vec<ImagePlace>,
}

/// The settings of a resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MirrorSettings {
    version: String,
    overrides: BTreeMap<String, String>,
    config: BTreeMap<String, BTreeMap<String, String>>,
    patches: Vec<ResourcePatch>,
}

impl MirrorSettings {
    /// The settings of `resource`, which installs `objects` in `version`: by `spec.registry` and
    /// `spec.config`. They have the version, because images of one version don't fit another.
    pub fn of(resource: &Knative, version: &Version, objects: &[Found], mirror: &Mirror) -> Self {
        let mut settings = Self { version: version.to_string(), ..Self::default() };
        let mut values: BTreeMap<&str, BTreeSet<Option<&str>>> = BTreeMap::new();
        for (name, value) in objects.iter().flat_map(|found| image_variables(&found.object)) {
            values.entry(name).or_default().insert(value);
        }
        for place in objects.iter().flat_map(|found| &found.places) {
            let image = mirror.name(&place.image);
            match &place.setting {
                ImageSetting::Override(key) => {
                    settings.overrides.entry(key.clone()).or_insert(image);
                }
                // It changes all variables of this name.
                ImageSetting::Variable(name) if values.get(name.as_str()).is_some_and(|all| all.len() == 1) => {
                    settings.overrides.entry(name.clone()).or_insert(image);
                }
                ImageSetting::Config { map, key } => {
                    let map = config_name(resource, map).to_owned();
                    settings.config.entry(map).or_default().insert(key.clone(), image);
                }
                ImageSetting::Variable(_) | ImageSetting::Patch => {}
            }
        }
        settings
    }

    /// Adds patches of the images that are not those of the mirror in `rendered`: what these
    /// settings make of `objects`. Returns whether there are any.
    pub fn add_patches(&mut self, objects: &[Found], rendered: &[Value], mirror: &Mirror) -> bool {
        for (found, after) in objects.iter().zip(rendered) {
            let missed = found.places.iter().filter(|place| !is_mirrored(place, after, mirror));
            let operations: Vec<Value> = missed
                .map(|place| json!({"op": "replace", "path": place.path, "value": mirror.name(&place.image)}))
                .collect();
            if operations.is_empty() {
                continue;
            }
            let field = |pointer: &str| text(&found.object, pointer).to_owned();
            let target = PatchTarget {
                api_version: field("/apiVersion"),
                kind: field("/kind"),
                name: field("/metadata/name"),
                namespace: Some(field("/metadata/namespace")).filter(|namespace| !namespace.is_empty()),
            };
            let patch = Patch { type_: PatchType::Json, content: json!(operations).to_string() };
            self.patches.push(ResourcePatch { target, patch });
        }
        !self.patches.is_empty()
    }

    /// JSON merge patch (RFC 7386) of the spec of `resource`. A list in it has the entries of the
    /// resource, too.
    pub fn merge_patch(&self, resource: &Knative) -> Value {
        let mut spec = json!({"version": self.version});
        if !self.overrides.is_empty() {
            spec["registry"] = json!({"override": self.overrides});
        }
        if !self.config.is_empty() {
            spec["config"] = json!(self.config);
        }
        if !self.patches.is_empty() {
            let own = &resource.common().patches;
            spec["patches"] = json!(own.iter().chain(&self.patches).collect::<Vec<_>>());
        }
        spec
    }
}

/// What `rendered` has other than `objects` with the images of `mirror`: places and images, or
/// objects.
pub fn differences(objects: &[Found], rendered: &[Value], mirror: &Mirror) -> Vec<String> {
    let mut differences = Vec::new();
    for (found, after) in objects.iter().zip(rendered) {
        let mut expected = found.object.clone();
        for place in &found.places {
            if let Some(image) = expected.pointer_mut(&place.path) {
                *image = json!(mirror.name(&place.image));
            }
        }
        if expected == *after {
            continue;
        }
        let id = ObjectId::of(&found.object);
        let missed = found.places.iter().filter(|place| !is_mirrored(place, after, mirror));
        let missed: Vec<String> = missed.map(|place| format!("{id} {}: {}", place.path, place.image)).collect();
        if missed.is_empty() {
            differences.push(format!("{id}: another field changes"));
        }
        differences.extend(missed);
    }
    if objects.len() != rendered.len() {
        differences.push(format!("{} objects instead of {}", rendered.len(), objects.len()));
    }
    differences
}

/// Whether `rendered` has the image of the mirror at `place`.
fn is_mirrored(place: &ImagePlace, rendered: &Value, mirror: &Mirror) -> bool {
    text(rendered, &place.path) == mirror.name(&place.image)
}

/// The name of ConfigMap `map` in `spec.config`: that under which `resource` has entries, because
/// those under the full name replace the others.
fn config_name<'n>(resource: &Knative, map: &'n str) -> &'n str {
    let config = &resource.common().config;
    let short = short(map).filter(|short| config.contains_key(*short) || map.starts_with("config-"));
    short.filter(|_| !config.contains_key(map)).unwrap_or(map)
}

#[cfg(test)]
mod tests {
    use knative_operator_render::image_places;
    use knative_operator_rules as rules;
    use knative_operator_shared::api::Component;

    use super::*;

    fn resource(spec: &Value) -> Knative {
        let object = json!({"metadata": {"name": "a", "namespace": "n"}, "spec": spec});
        rules::parse(Component::Eventing, &object).unwrap()
    }

    fn found(object: Value) -> Found {
        Found { places: image_places(&object, Component::Eventing, "1.22.1"), object }
    }

    /// A Deployment with a container `c`, which has the variable `GH_RA_IMAGE`.
    fn deployment(name: &str, image: &str, adapter: &Value) -> Value {
        let mut container = json!({"name": "c", "image": image, "env": [{"name": "GH_RA_IMAGE"}]});
        container["env"][0]["value"] = adapter.clone();
        json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "n"},
            "spec": {"template": {"spec": {"containers": [container]}}}})
    }

    fn of(spec: &Value, objects: &[Found]) -> Value {
        let (resource, mirror) = (resource(spec), "m.io".parse().unwrap());
        MirrorSettings::of(&resource, &"1.22.1".parse().unwrap(), objects, &mirror).merge_patch(&resource)
    }

    #[test]
    fn overrides_and_config_name_each_image() {
        let config = json!({"kind": "ConfigMap", "metadata": {"name": "config-deployment"},
            "data": {"queue-sidecar-image": "a.io/queue:1"}});
        let objects = [found(deployment("w", "a.io/w:1", &json!("a.io/ra:1"))), found(config)];
        let expected = json!({"version": "1.22.1",
            "registry": {"override": {"w/c": "m.io/a.io/w:1", "GH_RA_IMAGE": "m.io/a.io/ra:1"}},
            "config": {"deployment": {"queue-sidecar-image": "m.io/a.io/queue:1"}}});
        assert_eq!(of(&json!({}), &objects), expected);
        let given = json!({"config": {"config-deployment": {"x": "y"}, "deployment": {"x": "z"}}});
        assert_eq!(of(&given, &objects)["config"]["config-deployment"], expected["config"]["deployment"]);
        assert_eq!(config_name(&resource(&json!({})), "eventing-integrations-images"), "eventing-integrations-images");
    }

    #[test]
    fn variable_with_several_values_is_patched() {
        let objects = [
            found(deployment("v", "a.io/v:1", &json!("a.io/ra:1"))),
            found(deployment("w", "a.io/w:1", &json!("a.io/ra:2"))),
        ];
        let own = json!({"patches": [{"target": {"apiVersion": "v1", "kind": "Service", "name": "s"},
            "patch": {"type": "merge", "content": "{}"}}]});
        let (resource, mirror) = (resource(&own), "m.io".parse().unwrap());
        let mut settings = MirrorSettings::of(&resource, &"1.22.1".parse().unwrap(), &objects, &mirror);
        assert!(!settings.overrides.contains_key("GH_RA_IMAGE"));
        let rendered = [
            deployment("v", "m.io/a.io/v:1", &json!("a.io/ra:1")),
            deployment("w", "m.io/a.io/w:1", &json!("a.io/ra:2")),
        ];
        assert_eq!(differences(&objects, &rendered, &mirror).len(), 2);
        assert!(settings.add_patches(&objects, &rendered, &mirror));
        let patches = settings.merge_patch(&resource)["patches"].take();
        assert_eq!((patches.as_array().unwrap().len(), &patches[0]), (3, &own["patches"][0]));
        assert_eq!(
            patches[1],
            json!({"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "v", "namespace": "n"},
                "patch": {"type": "json", "content": r#"[{"op":"replace","path":"/spec/template/spec/containers/0/env/0/value","value":"m.io/a.io/ra:1"}]"#}})
        );
    }

    #[test]
    fn differences_are_places_and_other_fields() {
        let mirror: Mirror = "m.io".parse().unwrap();
        let objects = [found(deployment("w", "a.io/w:1", &json!("a.io/ra:1")))];
        let mut rendered = [deployment("w", "m.io/a.io/w:1", &json!("m.io/a.io/ra:1"))];
        assert_eq!(differences(&objects, &rendered, &mirror), Vec::<String>::new());
        rendered[0]["metadata"]["labels"] = json!({"a": "b"});
        assert_eq!(differences(&objects, &rendered, &mirror), ["Deployment n/w: another field changes"]);
        rendered[0]["spec"]["template"]["spec"]["containers"][0]["image"] = json!("a.io/w:1");
        let place = "Deployment n/w /spec/template/spec/containers/0/image: a.io/w:1";
        assert_eq!(differences(&objects, &rendered, &mirror), [place]);
        assert_eq!(differences(&objects, &[], &mirror), ["0 objects instead of 1"]);
    }
}
