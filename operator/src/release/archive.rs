//! Keeps the releases that are installed, in ConfigMaps of the operator's namespace: an operator
//! whose bundle lacks one goes on to repair its installations.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_runtime::error_text;
use knative_operator_runtime::untyped::api_resource;
use knative_operator_shared::api::{Component, Knative};
use knative_operator_shared::label::ARCHIVED_RELEASE;
use knative_operator_shared::rules;
use knative_operator_shared::version::Version;
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::core::{DynamicObject, ObjectMeta};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::bundle::{Bundle, ReleaseError};
use super::choose::select_version;

/// Key of the files: a JSON object from paths to texts, compressed with gzip.
const FILES: &str = "files.json.gz";
/// Maximum size of the files in bytes. Knative's releases have 1.5 MB.
const MAX_SIZE: u64 = 32 << 20;
/// Maximum size of a ConfigMap's data in bytes, before it is encoded.
const MAX_COMPRESSED: usize = 700 << 10;

type Key = (Component, Version);

/// The archive.
#[derive(Clone, Debug)]
pub struct Archive(Arc<Shared>);

struct Shared {
    client: Client,
    namespace: String,
    /// Releases that this process has kept, or is about to keep.
    kept: Mutex<HashSet<Key>>,
    /// Releases that were read.
    read: Mutex<HashMap<Key, Arc<Bundle>>>,
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archive").field("namespace", &self.namespace).finish_non_exhaustive()
    }
}

impl Archive {
    /// The archive in `namespace` of the hub of `client`.
    pub fn new(client: Client, namespace: &str) -> Self {
        let namespace = namespace.to_owned();
        Self(Arc::new(Shared { client, namespace, kept: Mutex::default(), read: Mutex::default() }))
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.0.client.clone(), &self.0.namespace)
    }

    /// The release of `version` of `component`; `None` if it was not kept.
    ///
    /// # Errors
    ///
    /// If it can't be read.
    pub async fn read(&self, component: Component, version: &Version) -> Result<Option<Arc<Bundle>>, ReleaseError> {
        let (key, name) = ((component, version.clone()), name(component, version));
        if let Some(bundle) = self.0.read.lock().unwrap_or_else(PoisonError::into_inner).get(&key) {
            return Ok(Some(Arc::clone(bundle)));
        }
        let path = PathBuf::from(format!("ConfigMap {}/{name}", self.0.namespace));
        let failed = |why: String| ReleaseError::Unparsable { path: path.clone(), why };
        let unread = |error: kube::Error| ReleaseError::File {
            path: path.clone(),
            source: std::io::Error::other(error_text(&error)),
        };
        let map = self.maps().get_opt(&name).await.map_err(unread)?;
        let Some(map) = map else { return Ok(None) };
        let data = map.binary_data.and_then(|mut data| data.remove(FILES));
        let files = decode(&data.ok_or_else(|| failed(format!("it has no {FILES}")))?.0).map_err(failed)?;
        let bundle = Arc::new(Bundle::in_memory(path, files));
        let mut read = self.0.read.lock().unwrap_or_else(PoisonError::into_inner);
        // Drop releases that nobody uses any more.
        read.retain(|_, other| Arc::strong_count(other) > 1);
        read.insert(key, Arc::clone(&bundle));
        Ok(Some(bundle))
    }

    /// Keeps `version` of the bundle at `root`, which `resource` has, in the background: once per
    /// process, and if it `is_new` for the resource, since the archive loses unused ones.
    pub fn keep(&self, root: &Path, resource: &Knative, version: &Version, is_new: bool) {
        if !resource.common().manifests.is_empty() {
            return;
        }
        let (component, version) = (resource.component(), version.clone());
        let is_first = {
            let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.insert((component, version.clone()))
        };
        if !is_first && !is_new {
            return;
        }
        let (archive, bundle) = (self.clone(), Arc::new(Bundle::open(root.to_owned())));
        tokio::spawn(async move {
            if let Err(why) = archive.store(bundle, component, &version, is_first).await {
                tracing::warn!(%version, component = component.kind(), why, "cannot keep the release");
                archive.0.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(&(component, version));
            }
        });
    }

    /// Keeps `version` of `component`; the first time in this process, or if it is new, drops the
    /// releases that no resource of the hub has.
    async fn store(
        &self,
        bundle: Arc<Bundle>,
        component: Component,
        version: &Version,
        is_first: bool,
    ) -> Result<(), String> {
        let (maps, name) = (self.maps(), name(component, version));
        if maps.get_metadata_opt(&name).await.map_err(|error| error_text(&error))?.is_some() {
            return if is_first { self.remove_unused(&bundle, component, version).await } else { Ok(()) };
        }
        let (source, of) = (Arc::clone(&bundle), version.clone());
        let encoded = tokio::task::spawn_blocking(move || {
            encode(&source.files_of(component, &of).map_err(|error| error.to_string())?)
        });
        let encoded = encoded.await.map_err(|error| error.to_string())??;
        let metadata = ObjectMeta {
            name: Some(name),
            labels: Some(BTreeMap::from([(ARCHIVED_RELEASE.to_owned(), component.kind().to_owned())])),
            annotations: Some(BTreeMap::from([(ARCHIVED_RELEASE.to_owned(), version.to_string())])),
            ..ObjectMeta::default()
        };
        let binary_data = Some(BTreeMap::from([(FILES.to_owned(), ByteString(encoded))]));
        let map = ConfigMap { metadata, binary_data, immutable: Some(true), ..ConfigMap::default() };
        match maps.create(&PostParams::default(), &map).await {
            Ok(_) => {}
            // Another shard was faster.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error_text(&error)),
        }
        self.remove_unused(&bundle, component, version).await
    }

    /// Removes the releases of `component` that no resource has or asks for, apart from `version`.
    async fn remove_unused(&self, bundle: &Bundle, component: Component, version: &Version) -> Result<(), String> {
        let failed = |error: kube::Error| error_text(&error);
        let resources: Api<DynamicObject> = Api::all_with(self.0.client.clone(), &api_resource(component));
        let mut used = HashSet::from([version.to_string()]);
        for resource in resources.list(&ListParams::default()).await.map_err(failed)? {
            used.extend(resource.data["status"]["version"].as_str().map(str::to_owned));
            // The one that it is about to get.
            let parsed = rules::parse(component, &json!(resource)).ok();
            used.extend(parsed.and_then(|parsed| Some(select_version(bundle, &parsed).ok()?.to_string())));
        }
        let kept = ListParams::default().labels(&format!("{ARCHIVED_RELEASE}={}", component.kind()));
        for map in self.maps().list_metadata(&kept).await.map_err(failed)? {
            let version = map.annotations().get(ARCHIVED_RELEASE).filter(|version| !used.contains(*version));
            if let Some(version) = version.and_then(|version| version.parse().ok()) {
                self.0.kept.lock().unwrap_or_else(PoisonError::into_inner).remove(&(component, version));
                match self.maps().delete(&map.name_any(), &DeleteParams::default()).await {
                    Ok(_) => {}
                    Err(kube::Error::Api(status)) if status.code == 404 => {}
                    Err(error) => return Err(error_text(&error)),
                }
            }
        }
        Ok(())
    }
}

fn name(component: Component, version: &Version) -> String {
    let version = version.to_string().to_ascii_lowercase().replace('+', "-");
    format!("knative-operator-release-{}-{version}", component.canonical())
}

fn encode(files: &BTreeMap<PathBuf, String>) -> Result<Vec<u8>, String> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let text = serde_json::to_vec(files).map_err(|error| error.to_string())?;
    let encoded = encoder.write_all(&text).and_then(|()| encoder.finish()).map_err(|error| error.to_string())?;
    let size = encoded.len();
    (size <= MAX_COMPRESSED)
        .then_some(encoded)
        .ok_or_else(|| format!("it has {size} bytes, more than {MAX_COMPRESSED}"))
}

fn decode(encoded: &[u8]) -> Result<BTreeMap<PathBuf, String>, String> {
    let mut text = Vec::new();
    GzDecoder::new(encoded).take(MAX_SIZE).read_to_end(&mut text).map_err(|error| error.to_string())?;
    serde_json::from_slice(&text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archived_release_has_the_objects_of_the_bundle() {
        let root = tempfile::tempdir().unwrap();
        let files = [
            ("knative-serving/1.2.3/1.yaml", "a"),
            ("knative-serving/1.2.3/2.yaml", "b"),
            ("knative-serving/1.2.4/1.yaml", "c"),
            ("ingress/1.2/kourier/1.yaml", "d"),
            ("ingress/1.3/kourier/1.yaml", "e"),
            ("security-guard/0.6/1.yaml", "f"),
        ];
        for (path, name) in files {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{{apiVersion: v1, kind: X, metadata: {{name: {name}}}}}")).unwrap();
        }
        let (bundle, version) = (Bundle::open(root.path().to_owned()), "1.2.3".parse().unwrap());
        let encoded = encode(&bundle.files_of(Component::Serving, &version).unwrap()).unwrap();
        let archived = Bundle::in_memory("ConfigMap a/b".into(), decode(&encoded).unwrap());
        let names = |bundle: &Bundle, path: PathBuf| {
            let objects = bundle.objects(&path).map(|all| all.iter().map(|o| o.id().name.clone()).collect::<Vec<_>>());
            objects.map_err(|error| error.to_string())
        };
        let release = archived.release(Component::Serving, &version);
        assert_eq!(release, PathBuf::from("ConfigMap a/b/knative-serving/1.2.3"));
        assert_eq!(names(&archived, release).unwrap(), ["a", "b"]);
        assert_eq!(names(&archived, archived.extra("ingress", &version, "kourier")).unwrap(), ["d"]);
        assert_eq!(archived.newest_guard().unwrap(), "0.6");
        assert_eq!(archived.versions(Component::Serving).unwrap(), [version]);
        let other = archived.release(Component::Serving, &"1.2.4".parse().unwrap());
        assert!(names(&archived, other).unwrap_err().contains("cannot read ConfigMap a/b/knative-serving/1.2.4"));
        assert!(decode(b"x").is_err());
    }
}
