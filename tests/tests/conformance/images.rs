//! `knative-operator images`: all images are found, and with the settings that it prints, all of
//! them come from the mirror.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use knative_operator_tests::tools;
use serde_json::{Map, Value, json};

use super::{operator, outcome, small};

const MIRROR: &str = "mirror.example/knative";
/// What images of releases contain: registries, and digests.
const RELEASED: [&str; 6] = ["gcr.io/", "docker.io/", "ghcr.io/", "quay.io/", "registry.k8s.io/", "@sha256:"];

/// Standard output of `images` for the resources in `file` with the bundle `releases`.
fn images(file: Option<&Path>, releases: &Path, more: &[&str]) -> Result<String, String> {
    let mut arguments = vec!["images", "--releases", releases.to_str().unwrap()];
    arguments.extend(file.iter().flat_map(|file| ["-f", file.to_str().unwrap()]));
    outcome(&operator(&[&arguments[..], more].concat()))
}

/// The objects of `resource`.
fn objects(resource: &Value, releases: &Path) -> Vec<Value> {
    let folder = tempfile::tempdir().unwrap();
    let file = write(folder.path(), resource);
    let (file, releases) = (file.to_str().unwrap(), releases.to_str().unwrap());
    let text = outcome(&operator(&["render", "-f", file, "--releases", releases, "-o", "json"])).unwrap();
    serde_json::from_str::<Value>(&text).unwrap()["items"].as_array().unwrap().clone()
}

fn write(folder: &Path, resource: &Value) -> std::path::PathBuf {
    let file = folder.join("resource.yaml");
    std::fs::write(&file, resource.to_string()).unwrap();
    file
}

/// Applies the JSON merge patch `patch`, which deletes nothing, to `value`.
fn merge(value: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else { return value.clone_from(patch) };
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    fields.iter().for_each(|(key, patch)| merge(&mut value[key], patch));
}

/// Collects the strings in `value` by their place, without the examples in ConfigMaps.
fn strings<'v>(value: &'v Value, path: &str, found: &mut BTreeMap<String, &'v str>) {
    match value {
        Value::String(text) => {
            found.insert(path.to_owned(), text);
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(index, item)| strings(item, &format!("{path}/{index}"), found));
        }
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(key, _)| *key != "_example");
            fields.for_each(|(key, value)| strings(value, &format!("{path}/{key}"), found));
        }
        _ => {}
    }
}

fn is_released(text: &str) -> bool {
    RELEASED.iter().any(|part| text.contains(part))
}

/// The newest patch of each minor version in `versions`, or with `RELEASES=all` all versions.
fn sample(versions: BTreeSet<String>) -> Vec<String> {
    if std::env::var_os("RELEASES").is_some() {
        return versions.into_iter().collect();
    }
    let minor = |version: &str| version.rsplit_once('.').map(|(minor, _)| minor.to_owned());
    let newest: BTreeMap<_, _> = versions.into_iter().map(|version| (minor(&version), version)).collect();
    newest.into_values().collect()
}

/// The resources of both kinds with all ingresses, sources and the guard, in a [`sample`] of the
/// versions in `releases`. The newest Serving is there without the guard, too, whose sidecar is
/// another one.
fn resources(releases: &Path) -> Vec<Value> {
    let enabled = |names: &[&str]| names.iter().map(|name| ((*name).to_owned(), json!({"enabled": true}))).collect();
    let ingress: Map<String, Value> = enabled(&["kourier", "istio", "contour", "gateway-api"]);
    let source: Map<String, Value> = enabled(&["ceph", "github", "gitlab", "kafka", "rabbitmq", "redis"]);
    let guard = json!({"securityGuard": {"enabled": true}});
    let kinds = [
        ("KnativeServing", "knative-serving", json!({"ingress": ingress, "security": guard})),
        ("KnativeEventing", "knative-eventing", json!({"source": source})),
    ];
    let mut resources = Vec::new();
    for (kind, name, spec) in kinds {
        let folders = std::fs::read_dir(releases.join(name)).unwrap();
        let versions = folders.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect::<BTreeSet<_>>();
        assert!(versions.len() > 10, "{versions:?}");
        for version in sample(versions) {
            let mut resource = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": kind,
                "metadata": {"name": name, "namespace": name}, "spec": spec});
            resource["spec"]["version"] = json!(version);
            resources.push(resource);
        }
    }
    let mut unguarded = resources.iter().rfind(|one| one["kind"] == "KnativeServing").unwrap().clone();
    unguarded["spec"].as_object_mut().unwrap().remove("security");
    resources.push(unguarded);
    resources
}

#[test]
fn printed_settings_take_each_image_of_each_release_from_the_mirror() {
    let releases = tools::go_operator_module().unwrap().join("cmd/operator/kodata");
    // The source of each name in the mirror, in all versions.
    let mut sources: BTreeMap<String, String> = BTreeMap::new();
    let folder = tempfile::tempdir().unwrap();
    for resource in resources(&releases) {
        let what = format!("{} {}", resource["kind"], resource["spec"]["version"]);
        let file = write(folder.path(), &resource);
        let listed = images(Some(&file), &releases, &["-o", "json", "--mirror", MIRROR]).unwrap();
        let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
        let text = |entry: &Value, field: &str| entry[field].as_str().unwrap().to_owned();
        let mirrored: BTreeMap<String, String> =
            listed.iter().map(|entry| (text(entry, "image"), text(entry, "mirrored"))).collect();
        for (image, name) in &mirrored {
            let other = sources.entry(name.clone()).or_insert_with(|| image.clone());
            assert_eq!(other, image, "{what}: both are {name} in the mirror");
        }

        let settings = images(Some(&file), &releases, &["-o", "registry", "--mirror", MIRROR]).unwrap();
        let mut changed = resource.clone();
        merge(&mut changed, &serde_saphyr::from_str(&settings).unwrap());
        let (before, after) = (objects(&resource, &releases), objects(&changed, &releases));
        assert_eq!(before.len(), after.len(), "{what}");
        let mut used = BTreeSet::new();
        for (before, after) in before.iter().zip(&after) {
            let object = format!("{what}: {} {}", before["kind"], before["metadata"]["name"]);
            let (mut old, mut new) = (BTreeMap::new(), BTreeMap::new());
            strings(before, "", &mut old);
            strings(after, "", &mut new);
            assert_eq!(old.keys().collect::<Vec<_>>(), new.keys().collect::<Vec<_>>(), "{object}");
            let is_definition = before["kind"] == "CustomResourceDefinition";
            for (path, before) in old {
                let after = new[&path];
                if is_released(before) && !is_definition {
                    assert_eq!(Some(after), mirrored.get(before).map(String::as_str), "{object} {path}: {before}");
                    assert!(after.starts_with(&format!("{MIRROR}/")), "{object} {path}: {after}");
                    used.insert(before);
                } else {
                    assert_eq!(before, after, "{object} {path}");
                }
            }
        }
        // Those that are left are the operator's own.
        assert!(used.len() > 10 && mirrored.len() == used.len() + 2, "{what}: {used:#?} of {mirrored:#?}");
    }
}

#[test]
fn images_are_listed_by_default_for_both_kinds_and_the_operator() {
    let text = images(None, &small(), &[]).unwrap();
    let images_of = |kind: &str| images(None, &small(), &["--kind", kind]).unwrap();
    for (kind, image) in [
        ("KnativeServing", "registry.example/net-istio:1.1.0\n"),
        ("KnativeEventing", "registry.example/request-reply:1.1.0\n"),
    ] {
        assert!(text.contains(image) && images_of(kind).contains(image), "{kind}: {text}");
    }
    let own = "ghcr.io/knative-operator-rs/knative-operator";
    assert!(text.contains(&format!("{own}:")) && text.contains(&format!("{own}-webhook:")), "{text}");
    assert!(!images_of("KnativeServing").contains("request-reply") && !images_of("KnativeServing").contains(own));
    let older = images(None, &small(), &["--kind", "KnativeServing", "--version", "1.0"]).unwrap();
    assert!(older.contains("registry.example/controller:1.0.0\n") && !older.contains(":1.1.0"), "{older}");
}

#[test]
fn each_image_has_a_line_that_copies_it() {
    for (output, from, to) in
        [("crane", "crane copy ", " "), ("skopeo", "skopeo copy --all --preserve-digests docker://", " docker://")]
    {
        let text = images(None, &small(), &["--kind", "KnativeServing", "-o", output, "--mirror", MIRROR]).unwrap();
        let line = format!("{from}registry.example/webhook:1.1.0{to}{MIRROR}/registry.example/webhook:1.1.0\n");
        assert!(text.contains(&line) && text.lines().all(|line| line.starts_with(from)), "{text}");
    }
}

#[test]
fn images_need_a_valid_mirror_and_a_version_of_the_bundle() {
    for (arguments, expected) in [
        (&["-o", "crane"][..], "--mirror <HOST/PATH>"),
        (&["-o", "registry", "--mirror", "https://m.io/x"][..], "write it as registry.example.com/path"),
        (&["--version", "9.9"][..], "KnativeServing knative-serving: spec.version: "),
    ] {
        let error = images(None, &small(), arguments).unwrap_err();
        assert!(error.contains(expected), "{error}");
    }
}

const FLEET: &str = "{apiVersion: operator.knative.dev/v1alpha1, kind: KnativeFleet, metadata: {name: f, namespace: n}, \
    spec: {placement: {clusterSelector: {}}, serving: {spec: {version: '1.1'}}, eventing: {}, \
    overrides: [{clusterSelector: {}, serving: {spec: CHANGE}}]}}";

#[test]
fn settings_of_a_fleet_fit_all_its_clusters() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("fleet.yaml");
    let registry = |change: &str| {
        std::fs::write(&file, FLEET.replace("CHANGE", change)).unwrap();
        images(Some(&file), &small(), &["-o", "registry", "--mirror", MIRROR])
    };
    let text = registry("{config: {network: {domain-template: x}}}").unwrap();
    let patch: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!((&patch["kind"], &patch["metadata"]), (&json!("KnativeFleet"), &json!({"name": "f", "namespace": "n"})));
    for (component, version) in [("serving", "1.1.0"), ("eventing", "1.1.0")] {
        let spec = &patch["spec"][component]["spec"];
        assert_eq!(spec["version"], version);
        let image = format!("{MIRROR}/registry.example/webhook:{version}");
        let overrides = spec["registry"]["override"].as_object().unwrap();
        assert!(overrides.values().any(|value| *value == *image), "{spec:#}");
    }
    // Another version has other images.
    let error = registry("{version: '1.0'}").unwrap_err();
    assert!(error.contains("KnativeFleet f spec.overrides[0].serving: its clusters have other images"), "{error}");
    let listed = images(Some(&file), &small(), &[]).unwrap();
    assert!(listed.contains("webhook:1.0.0") && listed.contains("webhook:1.1.0"), "{listed}");
}

#[test]
fn place_that_no_other_setting_reaches_is_patched() {
    let folder = tempfile::tempdir().unwrap();
    // The user's own patch comes after the other settings.
    let patch =
        json!([{"op": "replace", "path": "/spec/template/spec/containers/0/image", "value": "own.example/webhook:2"}]);
    let resource = json!({"apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
        "metadata": {"name": "s", "namespace": "knative-serving"}, "spec": {"patches": [
            {"target": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "webhook"},
                "patch": {"type": "json", "content": patch.to_string()}}]}});
    let file = write(folder.path(), &resource);
    let settings = images(Some(&file), &small(), &["-o", "registry", "--mirror", MIRROR]).unwrap();
    let mut changed = resource;
    merge(&mut changed, &serde_saphyr::from_str(&settings).unwrap());
    assert_eq!(changed["spec"]["patches"].as_array().unwrap().len(), 2, "{changed:#}");
    let objects = objects(&changed, &small());
    let webhook =
        objects.iter().find(|one| one["kind"] == "Deployment" && one["metadata"]["name"] == "webhook").unwrap();
    let image = &webhook["spec"]["template"]["spec"]["containers"][0]["image"];
    assert_eq!(*image, format!("{MIRROR}/own.example/webhook:2"));
}
