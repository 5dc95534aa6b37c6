//! Tells the webhook what can be installed, in a ConfigMap: the versions of the bundle, and the names that a spec may refer to.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_runtime::words;
use knative_operator_shared::api::Component;
use knative_operator_shared::label::{FIELD_MANAGER, RELEASES_CONFIG_MAP};
use knative_operator_shared::rules::{Names, Releases};
use knative_operator_shared::version::Version;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;

use crate::release::{Bundle, ReleaseError};
use crate::render;

/// Says of what bundle the ConfigMap tells.
const BUNDLE: &str = "operator.knative.dev/bundle";
/// How soon a failure is tried again.
const RETRY: Duration = Duration::from_secs(30);

/// Tells it once, and again if that fails. Costs one read where it was told before.
pub async fn tell(client: Client, namespace: String, root: std::path::PathBuf) {
    while let Err(why) = once(&client, &namespace, &root).await {
        tracing::warn!(why, "the webhook can't be told what the release bundle has");
        tokio::time::sleep(RETRY).await;
    }
}

async fn once(client: &Client, namespace: &str, root: &Path) -> Result<(), String> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let mark = mark(root);
    let there = maps.get_metadata_opt(RELEASES_CONFIG_MAP).await.map_err(|e| words(&e))?;
    if there.is_some_and(|map| map.metadata.annotations.is_some_and(|a| a.get(BUNDLE) == Some(&mark))) {
        return Ok(());
    }
    let bundle = Bundle::at(root.to_owned());
    let releases = tokio::task::spawn_blocking(move || releases(&bundle))
        .await
        .map_err(|e| e.to_string())?
        .map_err(|e| e.to_string())?;
    let text = serde_json::to_string(&releases).map_err(|e| e.to_string())?;
    let map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": RELEASES_CONFIG_MAP, "annotations": {BUNDLE: mark}},
        "data": {"releases.json": text},
    });
    let params = PatchParams::apply(FIELD_MANAGER).force();
    maps.patch_metadata(RELEASES_CONFIG_MAP, &params, &Patch::Apply(&map)).await.map(drop).map_err(|e| words(&e))
}

/// What `bundle` has. Of each minor version the newest patch stands for all.
pub fn releases(bundle: &Bundle) -> Result<Releases, ReleaseError> {
    let mut releases = Releases::default();
    for component in Component::ALL {
        let mut versions = bundle.versions(component)?;
        versions.sort();
        let newest: BTreeMap<String, &Version> = versions.iter().map(|v| (v.minor(), v)).collect();
        let names = newest
            .into_iter()
            .map(|(minor, version)| Ok((minor, names(bundle, component, version)?)))
            .collect::<Result<_, ReleaseError>>()?;
        releases.names.insert(component.kind().to_owned(), names);
        releases.versions.insert(component.kind().to_owned(), versions);
    }
    Ok(releases)
}

/// The names in `version` of `component`, and in everything that goes with it.
fn names(bundle: &Bundle, component: Component, version: &Version) -> Result<Names, ReleaseError> {
    let family = match component {
        Component::Serving => "ingress",
        Component::Eventing => "eventing-source",
    };
    let extras = bundle.extras(family).into_iter().filter(|(v, _)| v.same_minor(version)).flat_map(|(_, names)| names);
    let mut directories = vec![bundle.release(component, version)];
    directories.extend(extras.map(|name| bundle.extra(family, version, &name)));
    if component == Component::Serving {
        directories.extend(bundle.newest_guard().ok().map(|guard| bundle.root().join("security-guard").join(guard)));
    }
    let objects = directories.iter().map(|directory| bundle.objects(directory)).collect::<Result<Vec<_>, _>>()?;
    Ok(render::names(objects.iter().flat_map(|part| part.iter())))
}

/// Changes with the bundle at `root` and with the program.
fn mark(root: &Path) -> String {
    let mut hasher = DefaultHasher::new();
    env!("CARGO_PKG_VERSION").hash(&mut hasher);
    files(root, 0, &mut |path, length| (path, length).hash(&mut hasher));
    format!("{:016x}", hasher.finish())
}

fn files(directory: &Path, depth: usize, tell: &mut dyn FnMut(&Path, u64)) {
    let mut entries: Vec<_> =
        std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok).map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        match path.metadata() {
            Ok(meta) if meta.is_dir() && depth < 4 => files(&path, depth + 1, tell),
            Ok(meta) => tell(&path, meta.len()),
            Err(_) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_is_told_with_its_versions_and_names() {
        let root = tempfile::tempdir().unwrap();
        for (path, kind, name) in [
            ("knative-serving/1.22.0", "Service", "old"),
            ("knative-serving/1.22.1", "Service", "activator-service"),
            ("ingress/1.22/kourier", "Service", "kourier"),
            ("ingress/1.21/kourier", "Service", "elsewhere"),
            ("knative-eventing/1.21.0", "ConfigMap", "config-br-defaults"),
        ] {
            let directory = root.path().join(path);
            std::fs::create_dir_all(&directory).unwrap();
            std::fs::write(
                directory.join("1.yaml"),
                format!("{{apiVersion: v1, kind: {kind}, metadata: {{name: {name}}}}}"),
            )
            .unwrap();
        }
        let releases = releases(&Bundle::at(root.path().to_owned())).unwrap();
        assert_eq!(
            releases.versions["KnativeServing"].iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["1.22.0", "1.22.1"]
        );
        assert_eq!(
            releases.names["KnativeServing"]["1.22"].services.iter().collect::<Vec<_>>(),
            ["activator-service", "kourier"]
        );
        assert!(releases.names["KnativeEventing"]["1.21"].configs.contains_key("config-br-defaults"));
        let before = mark(root.path());
        std::fs::write(root.path().join("ingress/1.22/kourier/2.yaml"), "x").unwrap();
        assert_ne!(mark(root.path()), before);
    }
}
