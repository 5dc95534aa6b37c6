//! The cases of `conformance::differential::patched` against a real API server: it accepts each
//! rendered object as it is, and the same patches sent to it have the same result.

use std::collections::{BTreeMap, HashSet};
use std::path::Path;

use knative_operator_patch::remove_directives;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::{Result, releases, tools, wait};
use kube::api::{DeleteParams, Patch, PatchParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use crate::no_spec;
use crate::support::{namespace, run};

/// Output of `render` for `resource`; `None` if it is refused.
async fn render(resource: &Value) -> Result<Option<Vec<Value>>> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("resource.json");
    std::fs::write(&file, resource.to_string())?;
    let mut command = tokio::process::Command::new(tools::binary("knative-operator")?);
    command.args(["render", "-o", "json", "--kubernetes-min-version", "v1.25.0", "--releases"]);
    let output = command.arg(releases::best().dir).arg("-f").arg(&file).output().await?;
    if !output.status.success() {
        return Ok(None);
    }
    let mut list: Value = serde_json::from_slice(&output.stdout)?;
    // The operator applies objects without directives.
    remove_directives(&mut list);
    Ok(list["items"].as_array_mut().map(std::mem::take))
}

fn text<'v>(object: &'v Value, pointer: &str) -> &'v str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

fn identity(object: &Value) -> String {
    ["/apiVersion", "/kind", "/metadata/namespace", "/metadata/name"].map(|path| text(object, path)).join(" ")
}

fn api(client: &Client, object: &Value) -> Api<DynamicObject> {
    let (group, version) = text(object, "/apiVersion").split_once('/').unwrap_or(("", text(object, "/apiVersion")));
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, version, text(object, "/kind")));
    match text(object, "/metadata/namespace") {
        "" => Api::all_with(client.clone(), &kind),
        namespace => Api::namespaced_with(client.clone(), namespace, &kind),
    }
}

async fn apply(client: &Client, object: &Value, dry_run: bool) -> Result<Value> {
    let params = PatchParams { dry_run, ..PatchParams::apply("knative-operator").force() };
    let applied = api(client, object).patch(text(object, "/metadata/name"), &params, &Patch::Apply(object)).await;
    Ok(serde_json::to_value(applied.map_err(|e| format!("{}: {e}", identity(object)))?)?)
}

/// Paths at which `live` lacks what `rendered` has.
fn missing(rendered: &Value, live: &Value, path: &str, paths: &mut Vec<String>) {
    match (rendered, live) {
        (Value::Object(rendered), Value::Object(live)) => {
            for (key, value) in rendered {
                missing(value, live.get(key).unwrap_or(&Value::Null), &format!("{path}/{key}"), paths);
            }
        }
        (Value::Array(rendered), Value::Array(live)) if rendered.len() == live.len() => {
            for (index, (rendered, live)) in rendered.iter().zip(live).enumerate() {
                missing(rendered, live, &format!("{path}/{index}"), paths);
            }
        }
        // Empty maps and lists may be omitted.
        (Value::Object(empty), Value::Null) if empty.is_empty() => {}
        (Value::Array(empty), Value::Null) if empty.is_empty() => {}
        // The API server normalizes quantities.
        (rendered, live) if rendered == live || rendered == "1000m" && live == "1" => {}
        (rendered, live) => paths.push(format!("{path}: rendered {rendered}, live {live}")),
    }
}

/// The object without what each write changes, what controllers write, and empty maps.
fn content(mut object: Value) -> Value {
    object.as_object_mut().map(|object| object.remove("status"));
    for field in ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp"] {
        object["metadata"].as_object_mut().map(|metadata| metadata.remove(field));
    }
    let annotations = object["metadata"].get_mut("annotations").and_then(Value::as_object_mut);
    annotations.map(|annotations| annotations.remove("deployment.kubernetes.io/revision"));
    without_empty_maps(&mut object);
    object
}

fn without_empty_maps(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.values_mut().for_each(without_empty_maps);
            map.retain(|_, value| *value != json!({}));
        }
        Value::Array(list) => list.iter_mut().for_each(without_empty_maps),
        _ => {}
    }
}

/// The result of `patches` of `object` by the API server, if it supports them: one patch, for which
/// a dry run is enough, of a type that the API server has for the kind.
async fn patched_by_server(client: &Client, object: &Value, patches: &[&Value]) -> Result<Option<Value>> {
    let [patch] = patches else { return Ok(None) };
    let patch: Value = serde_json::from_value(patch["patch"].clone())?;
    let document: Value = serde_saphyr::from_str(text(&patch, "/content"))?;
    if document.get("$patch").is_some() {
        return Ok(None);
    }
    let params = PatchParams { dry_run: true, ..PatchParams::default() };
    let (api, name) = (api(client, object), text(object, "/metadata/name"));
    let patched = match text(&patch, "/type") {
        "json" => api.patch(name, &params, &Patch::<Value>::Json(serde_json::from_value(document)?)).await,
        "merge" => api.patch(name, &params, &Patch::Merge(document)).await,
        _ => api.patch(name, &params, &Patch::Strategic(document)).await,
    };
    match patched {
        Ok(patched) => Ok(Some(serde_json::to_value(patched)?)),
        // Custom resources have no strategic merge patches.
        Err(kube::Error::Api(status)) if status.code == 415 => Ok(None),
        Err(error) => Err(format!("{}: {error}", identity(object)).into()),
    }
}

/// Compares one case; returns the numbers of patched objects, and of those that the API server
/// patched.
async fn compare(client: &Client, case: &Path, defined: &mut HashSet<String>) -> Result<(usize, usize)> {
    let resource: Value = serde_saphyr::from_str(&std::fs::read_to_string(case)?)?;
    let mut unpatched = resource.clone();
    unpatched["spec"].as_object_mut().map(|spec| spec.remove("patches"));
    let (Some(after), Some(before)) = (render(&resource).await?, render(&unpatched).await?) else { return Ok((0, 0)) };
    for crd in before.iter().filter(|object| object["kind"] == "CustomResourceDefinition") {
        let mut crd = crd.clone();
        crd["spec"]["conversion"] = json!({"strategy": "None"});
        if defined.insert(identity(&crd)) {
            apply(client, &crd, false).await?;
        }
    }
    let before: BTreeMap<String, Value> = before.into_iter().map(|object| (identity(&object), object)).collect();
    let (mut objects, mut by_server) = (0, 0);
    for object in after.iter().filter(|object| before.get(&identity(object)) != Some(*object)) {
        let own = |owner: &Value| {
            let mut object = owner.clone();
            object["metadata"].as_object_mut().map(|metadata| metadata.remove("ownerReferences"));
            object
        };
        let (object, original) = (own(object), own(&before[&identity(object)]));
        apply(client, &original, false).await?;
        let patches: Vec<_> = resource["spec"]["patches"].as_array().into_iter().flatten().collect();
        let own = |patch: &&&Value| {
            ["kind", "apiVersion"].iter().all(|key| patch["target"][*key] == object[*key])
                && patch["target"]["name"] == object["metadata"]["name"]
        };
        let own: Vec<&Value> = patches.iter().filter(own).copied().collect();
        let patched = patched_by_server(client, &object, &own).await;
        let delete = async || {
            let policy = DeleteParams::background();
            api(client, &object).delete(text(&object, "/metadata/name"), &policy).await
        };
        let live = match apply(client, &object, true).await {
            // The operator claims the field first, which a dry run can't do.
            Err(error) if error.to_string().contains("rollingUpdate: Forbidden") => {
                delete().await?;
                apply(client, &object, true).await
            }
            live => {
                delete().await?;
                live
            }
        };
        let live = match live {
            // The Go operator, too, makes a boolean of the `y` in these cases.
            Err(error) if error.to_string().contains("expected string") => continue,
            live => live?,
        };
        let mut paths = Vec::new();
        missing(&object, &live, "", &mut paths);
        assert!(paths.is_empty(), "{}: {}: {paths:#?}", case.display(), identity(&object));
        objects += 1;
        if let Some(patched) = patched? {
            assert_eq!(content(live), content(patched), "{}: {}", case.display(), identity(&object));
            by_server += 1;
        }
    }
    Ok((objects, by_server))
}

#[test]
fn api_server_has_the_rendered_objects() {
    let cases = tools::project().join("tests/tests/conformance/cases/patches");
    run(async {
        let spoke = Cluster::spoke("patch-cases").await?;
        let client = spoke.client();
        for place in ["knative-serving", "knative-eventing"] {
            namespace(&spoke, place).await?;
        }
        spoke.apply(&no_spec::istio()).await?;
        wait::established(spoke.client()).await?;
        let (mut defined, mut objects, mut by_server) = (HashSet::new(), 0, 0);
        for case in std::fs::read_dir(cases)? {
            let (patched, same) = compare(&client, &case?.path(), &mut defined).await?;
            (objects, by_server) = (objects + patched, by_server + same);
        }
        eprintln!(
            "{objects} patched objects accepted as rendered; {by_server} equal what the API server makes of the patch"
        );
        assert!(objects >= 25 && by_server >= 20, "{objects} {by_server}");
        Ok(())
    });
}
