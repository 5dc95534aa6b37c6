//! Publishes the catalog of the release bundle in a ConfigMap for the webhook: its versions, and
//! the names that a spec may refer to.

use std::path::{Path, PathBuf};
use std::time::Duration;

use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_rules::Catalog;
use knative_operator_runtime::error_text;
use knative_operator_shared::label::{FIELD_MANAGER, RELEASES_CONFIG_MAP, RELEASES_KEY};
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde_json::json;
use sha2::{Digest, Sha256};

use knative_operator_release::{Bundle, ReleaseError, catalog};
use knative_operator_render::release_names;

/// Annotation with the digest of the bundle that the ConfigMap describes.
const BUNDLE: &str = "operator.knative.dev/bundle";
/// Increase it when the contents of [`Catalog`] change, so that the catalog is published again.
const FORMAT: u8 = 3;
/// Delay before a retry.
const RETRY: Duration = Duration::from_secs(30);

/// Why the catalog can't be published.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error("{}", error_text(.0))]
    Request(#[from] kube::Error),
    #[error("ConfigMap {RELEASES_CONFIG_MAP} was deleted")]
    Deleted,
    #[error(transparent)]
    Bundle(#[from] ReleaseError),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
}

/// Publishes the catalog of the bundle at `root`, with retries. If it is up to date, that costs one
/// read. `keeps_installed`: whether the operator keeps what is installed.
pub async fn publish(client: Client, namespace: String, root: PathBuf, keeps_installed: bool) {
    let mut seen = None;
    while let Err(why) = publish_once(&client, &namespace, (root.as_path(), keeps_installed), &mut seen).await {
        tracing::warn!(why = why.to_string(), "cannot publish the catalog of the release bundle for the webhook");
        tokio::time::sleep(RETRY).await;
    }
}

/// `seen`: the uid of the ConfigMap, once there was one.
async fn publish_once(
    client: &Client,
    namespace: &str,
    (root, keeps_installed): (&Path, bool),
    seen: &mut Option<String>,
) -> Result<(), PublishError> {
    let maps: Api<ConfigMap> = Api::namespaced(client.clone(), namespace);
    let digest = tokio::task::block_in_place(|| digest(root, keeps_installed));
    let published = maps.get_metadata_opt(RELEASES_CONFIG_MAP).await?;
    let (uid, annotations) = published.map(|map| (map.metadata.uid, map.metadata.annotations)).unzip();
    if annotations.flatten().is_some_and(|a| a.get(BUNDLE) == Some(&digest)) {
        return Ok(());
    }
    // Helm creates the ConfigMap, and deletes it when it rolls back to another operator. An apply
    // would then create one that Helm refuses to upgrade.
    *seen = match (uid.flatten(), seen.take()) {
        (None, Some(deleted)) => {
            *seen = Some(deleted);
            return Err(PublishError::Deleted);
        }
        (uid, _) => uid,
    };
    let bundle = Bundle::open(root.to_owned());
    let releases = tokio::task::spawn_blocking(move || catalog(&bundle, release_names)).await??;
    let text = serde_json::to_string(&Catalog { keeps_installed: Some(keeps_installed), ..releases })?;
    let mut map = json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": RELEASES_CONFIG_MAP, "annotations": {BUNDLE: digest}},
        "data": {RELEASES_KEY: text},
    });
    // Reading the bundle takes seconds, in which Helm may delete the ConfigMap, too.
    if let Some(uid) = seen {
        map["metadata"]["uid"] = uid.clone().into();
    }
    let params = PatchParams::apply(FIELD_MANAGER).force();
    maps.patch_metadata(RELEASES_CONFIG_MAP, &params, &Patch::Apply(&map)).await?;
    Ok(())
}

/// A digest of the bundle at `root`, the version of the operator and its setting. It reads all
/// files, which takes a fraction of the time that parsing takes.
fn digest(root: &Path, keeps_installed: bool) -> String {
    let mut digest = Sha256::new_with_prefix(env!("CARGO_PKG_VERSION"));
    digest.update([FORMAT, u8::from(keeps_installed)]);
    add_files(root, 0, &mut digest);
    digest.finalize()[..16].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn add_files(directory: &Path, depth: usize, digest: &mut Sha256) {
    let mut entries: Vec<_> =
        std::fs::read_dir(directory).into_iter().flatten().filter_map(Result::ok).map(|e| e.path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() && depth < 4 {
            add_files(&path, depth + 1, digest);
        } else if let Ok(contents) = std::fs::read(&path) {
            for part in [path.as_os_str().as_encoded_bytes(), &contents] {
                digest.update(part.len().to_le_bytes());
                digest.update(part);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalog_lists_versions_and_names() {
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
        let releases = catalog(&Bundle::open(root.path().to_owned()), release_names).unwrap();
        assert_eq!(
            releases.versions["KnativeServing"].iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["1.22.0", "1.22.1"]
        );
        assert_eq!(
            releases.names["KnativeServing"]["1.22"].services.iter().collect::<Vec<_>>(),
            ["activator-service", "kourier"]
        );
        assert!(releases.names["KnativeEventing"]["1.21"].configs.contains_key("config-br-defaults"));
        let file = root.path().join("ingress/1.22/kourier/2.yaml");
        std::fs::write(&file, "x").unwrap();
        let before = digest(root.path(), false);
        assert_eq!(digest(root.path(), false), before);
        assert_ne!(digest(root.path(), true), before);
        std::fs::write(&file, "y").unwrap();
        assert_ne!(digest(root.path(), false), before);
    }
}
