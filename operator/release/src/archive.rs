//! Keeps the releases that are installed, in ConfigMaps of the operator's namespace: an operator
//! whose bundle lacks one goes on to repair its installations.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::ConfigMap;
use knative_operator_runtime::compute::compute;
use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::{patch_as, post_as};
use knative_operator_runtime::untyped::api_resource;
use knative_operator_shared::api::Component;
use knative_operator_shared::label::{ARCHIVED_RELEASE, FIELD_MANAGER};
use knative_operator_shared::version::Version;
use kube::api::{DeleteParams, ListParams, Patch, Preconditions};
use kube::core::{DynamicObject, ObjectMeta};
use kube::{Api, Client, ResourceExt};
use serde_json::json;

use super::bundle::{Bundle, ReleaseError};

/// Key of the files: a JSON object from paths to texts, compressed with gzip.
const FILES: &str = "files.json.gz";
/// Maximum size of the files in bytes. Knative's releases have 1.5 MB.
const MAX_SIZE: u64 = 16 << 20;
/// Maximum size of a ConfigMap's data in bytes, before it is encoded.
const MAX_COMPRESSED: usize = 700 << 10;
/// Time after which the archive is looked at again, with the next reconcile; and after a failure.
const CHECK_INTERVAL: Duration = Duration::from_secs(3600);
const RETRY_INTERVAL: Duration = Duration::from_secs(600);
/// Delay of the removal of unused releases, after a resource has another one.
const SWEEP_DELAY: Duration = Duration::from_secs(10);

/// Why a release can't be kept, or one that is kept can't be read.
#[derive(Debug, thiserror::Error)]
enum ArchiveError {
    #[error("{}", error_text(.0))]
    Request(#[from] kube::Error),
    #[error(transparent)]
    Bundle(#[from] ReleaseError),
    #[error("it has version \"{0}\"")]
    OtherVersion(String),
    #[error("it has no {FILES}")]
    NoFiles,
    #[error("it has {0} bytes, more than {MAX_COMPRESSED}")]
    TooLarge(usize),
    #[error("it has more than {MAX_SIZE} bytes")]
    TooLong,
    #[error(transparent)]
    Compression(#[from] std::io::Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
}

type Key = (Component, Version);
type Files = BTreeMap<PathBuf, String>;

/// The archive.
#[derive(Clone)]
pub struct Archive(Arc<Shared>);

struct Shared {
    client: Client,
    namespace: String,
    /// Releases that were kept, or are about to be, and when that is due again.
    kept: Mutex<HashMap<Key, Instant>>,
    /// Components of which unused releases are about to be removed.
    sweeping: Mutex<HashSet<Component>>,
    /// Releases that were read. One at a time: they are large.
    read: tokio::sync::Mutex<HashMap<Key, Arc<Bundle>>>,
}

impl std::fmt::Debug for Archive {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Archive").field("namespace", &self.0.namespace).finish_non_exhaustive()
    }
}

impl Archive {
    /// The archive in `namespace` of the hub of `client`.
    pub fn new(client: Client, namespace: &str) -> Self {
        let namespace = namespace.to_owned();
        Self(Arc::new(Shared {
            client,
            namespace,
            kept: Mutex::default(),
            sweeping: Mutex::default(),
            read: tokio::sync::Mutex::default(),
        }))
    }

    fn maps(&self) -> Api<ConfigMap> {
        Api::namespaced(self.0.client.clone(), &self.0.namespace)
    }

    /// The release of `version` of `component`; `None` if it was not kept, or is damaged.
    ///
    /// # Errors
    ///
    /// If the API server can't be asked.
    pub async fn read(&self, component: Component, version: &Version) -> Result<Option<Arc<Bundle>>, ReleaseError> {
        let (key, name) = ((component, version.clone()), name(component, version));
        let mut read = self.0.read.lock().await;
        if let Some(bundle) = read.get(&key) {
            return Ok(Some(Arc::clone(bundle)));
        }
        let path = PathBuf::from(format!("ConfigMap {}/{name}", self.0.namespace));
        let found = self.maps().get_opt(&name).await;
        let found = found.map_err(|error| ReleaseError::File {
            path: path.clone(),
            source: std::io::Error::other(error_text(&error)),
        })?;
        let Some(map) = found else { return Ok(None) };
        match compute(&self.0.namespace, || files(&map, version)).await {
            Ok(files) => {
                let bundle = Arc::new(Bundle::in_memory(path, files));
                // Drop releases that nobody uses any more.
                read.retain(|_, other| Arc::strong_count(other) > 1);
                read.insert(key, Arc::clone(&bundle));
                Ok(Some(bundle))
            }
            Err(why) => {
                tracing::warn!(archive = %path.display(), why = why.to_string(), "cannot read the archived release");
                Ok(None)
            }
        }
    }

    /// Keeps `version` of `component`, which a resource has, in the background, if the bundle at
    /// `root` has it: from time to time, and if it `is_new` for the resource, since the archive
    /// loses unused ones.
    pub fn keep(&self, root: &Path, component: Component, version: &Version, is_new: bool) {
        let bundle = Bundle::open(root.to_owned());
        let (key, now) = ((component, version.clone()), Instant::now());
        let is_due = {
            let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
            let is_due = kept.get(&key).is_none_or(|due| *due <= now);
            if is_due || is_new {
                kept.insert(key.clone(), now + CHECK_INTERVAL);
            }
            is_due
        };
        if (!is_due && !is_new) || !bundle.release(component, version).is_dir() {
            return;
        }
        let archive = self.clone();
        tokio::spawn(async move {
            let (component, version) = &key;
            if let Err(why) = archive.store(bundle, component.to_owned(), version, is_due).await {
                tracing::warn!(%version, component = component.kind(), why = why.to_string(), "cannot keep the release");
                let mut kept = archive.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
                kept.insert(key, Instant::now() + RETRY_INTERVAL);
            }
        });
    }

    /// Stores `version` of `component`, and drops what is not used any more. With `compare`,
    /// replaces one with other contents.
    async fn store(
        &self,
        bundle: Bundle,
        component: Component,
        version: &Version,
        compare: bool,
    ) -> Result<(), ArchiveError> {
        let (maps, name) = (self.maps(), name(component, version));
        // A resource has it now, and so no longer the one before.
        if !compare && maps.get_metadata_opt(&name).await?.is_some() {
            return self.remove_unused_soon(&bundle, component, version).await;
        }
        let stored = maps.get_opt(&name).await?;
        let of = version.clone();
        let prepared = tokio::task::spawn_blocking(move || {
            let wanted = bundle.files_of(component, &of)?;
            let is_same = stored.as_ref().is_some_and(|map| files(map, &of).is_ok_and(|files| files == wanted));
            let encoded = if is_same { None } else { Some(encode(&wanted)?) };
            Ok::<_, ArchiveError>((bundle, stored, encoded))
        });
        let (bundle, stored, encoded) = prepared.await??;
        if let Some(encoded) = encoded {
            let wanted = manifest(name.clone(), component, version, encoded);
            let written = match stored {
                // An operator that ends here loses nothing.
                Some(stored) => {
                    let mut patch = json!(wanted);
                    patch["metadata"]["resourceVersion"] = json!(stored.metadata.resource_version);
                    maps.patch(&name, &patch_as(FIELD_MANAGER), &Patch::Merge(patch)).await
                }
                None => maps.create(&post_as(FIELD_MANAGER), &wanted).await,
            };
            match written {
                // Another shard was faster.
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                written => drop(written?),
            }
        }
        self.remove_unused(&bundle, component, version).await
    }

    /// Like [`Self::remove_unused`], for all resources of `component` that change in the next
    /// seconds together.
    async fn remove_unused_soon(
        &self,
        bundle: &Bundle,
        component: Component,
        version: &Version,
    ) -> Result<(), ArchiveError> {
        let sweeping = || self.0.sweeping.lock().unwrap_or_else(PoisonError::into_inner);
        if !sweeping().insert(component) {
            return Ok(());
        }
        tokio::time::sleep(SWEEP_DELAY).await;
        sweeping().remove(&component);
        self.remove_unused(bundle, component, version).await
    }

    /// Removes the releases of `component` that no resource has, and that `bundle` has: they can be
    /// kept again. Nothing, while a resource has no version: it may be one that was lost.
    async fn remove_unused(
        &self,
        bundle: &Bundle,
        component: Component,
        version: &Version,
    ) -> Result<(), ArchiveError> {
        let kept = ListParams::default().labels(&format!("{ARCHIVED_RELEASE}={}", component.kind()));
        let mut unused = self.maps().list_metadata(&kept).await?.items;
        let version_of = |annotations: &BTreeMap<String, String>| annotations.get(ARCHIVED_RELEASE)?.parse().ok();
        unused.retain(|map| {
            version_of(map.annotations())
                .is_some_and(|kept: Version| kept != *version && bundle.release(component, &kept).is_dir())
        });
        if unused.is_empty() {
            return Ok(());
        }
        let resources: Api<DynamicObject> = Api::all_with(self.0.client.clone(), &api_resource(component));
        let resources = resources.list(&ListParams::default()).await?;
        let versions = resources.iter().map(|one| one.data["status"]["version"].as_str()?.parse().ok());
        let Some(used) = versions.collect::<Option<HashSet<Version>>>() else { return Ok(()) };
        for map in unused.iter().filter(|map| version_of(map.annotations()).is_some_and(|kept| !used.contains(&kept))) {
            self.delete(&map.metadata).await?;
            let key = version_of(map.annotations()).map(|kept| (component, kept));
            let mut kept = self.0.kept.lock().unwrap_or_else(PoisonError::into_inner);
            key.and_then(|key| kept.remove(&key));
        }
        Ok(())
    }

    /// Deletes the ConfigMap with `meta`, if it is unchanged.
    async fn delete(&self, meta: &ObjectMeta) -> Result<(), ArchiveError> {
        let preconditions = Preconditions { uid: meta.uid.clone(), resource_version: meta.resource_version.clone() };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match self.maps().delete(meta.name.as_deref().unwrap_or_default(), &params).await {
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            deleted => {
                deleted?;
                Ok(())
            }
        }
    }
}

fn name(component: Component, version: &Version) -> String {
    let version = version.to_string().to_ascii_lowercase().replace('+', "-");
    format!("knative-operator-release-{}-{version}", component.canonical())
}

fn manifest(name: String, component: Component, version: &Version, encoded: Vec<u8>) -> ConfigMap {
    let metadata = ObjectMeta {
        name: Some(name),
        labels: Some(BTreeMap::from([(ARCHIVED_RELEASE.to_owned(), component.kind().to_owned())])),
        annotations: Some(BTreeMap::from([(ARCHIVED_RELEASE.to_owned(), version.to_string())])),
        ..ObjectMeta::default()
    };
    let binary_data = Some(BTreeMap::from([(FILES.to_owned(), ByteString(encoded))]));
    ConfigMap { metadata, binary_data, ..ConfigMap::default() }
}

/// The files in `map`, if it has those of `version`.
fn files(map: &ConfigMap, version: &Version) -> Result<Files, ArchiveError> {
    let of = map.annotations().get(ARCHIVED_RELEASE).map(String::as_str).unwrap_or_default();
    if of != version.to_string() {
        return Err(ArchiveError::OtherVersion(of.to_owned()));
    }
    let data = map.binary_data.as_ref().and_then(|data| data.get(FILES));
    decode(&data.ok_or(ArchiveError::NoFiles)?.0)
}

fn encode(files: &Files) -> Result<Vec<u8>, ArchiveError> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(&serde_json::to_vec(files)?)?;
    let encoded = encoder.finish()?;
    if encoded.len() > MAX_COMPRESSED { Err(ArchiveError::TooLarge(encoded.len())) } else { Ok(encoded) }
}

fn decode(encoded: &[u8]) -> Result<Files, ArchiveError> {
    let mut text = Vec::new();
    let size = GzDecoder::new(encoded).take(MAX_SIZE).read_to_end(&mut text)?;
    if size as u64 == MAX_SIZE {
        return Err(ArchiveError::TooLong);
    }
    Ok(serde_json::from_slice(&text)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn other_contents_replace_a_release_that_is_never_gone() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("knative-serving/1.2.3");
        std::fs::create_dir_all(&path).unwrap();
        std::fs::write(path.join("1.yaml"), "{apiVersion: v1, kind: X, metadata: {name: a}}").unwrap();
        let (bundle, version) = (Bundle::open(root.path().to_owned()), "1.2.3".parse().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&requests);
        let answer = move |request: http::Request<kube::client::Body>| {
            let (method, path) = (request.method().to_string(), request.uri().path().to_owned());
            let old = manifest(
                name(Component::Serving, &"1.2.3".parse().unwrap()),
                Component::Serving,
                &"1.2.3".parse().unwrap(),
                Vec::new(),
            );
            let body = if path.ends_with("/configmaps") {
                json!({"apiVersion": "v1", "kind": "ConfigMapList", "metadata": {}, "items": []})
            } else {
                json!(old)
            };
            seen.lock().unwrap().push(format!("{method} {path}"));
            async move {
                Ok::<_, std::convert::Infallible>(http::Response::new(kube::client::Body::from(
                    body.to_string().into_bytes(),
                )))
            }
        };
        let archive = Archive::new(Client::new(tower::service_fn(answer), "n"), "n");
        archive.store(bundle, Component::Serving, &version, true).await.unwrap();
        let map = "/api/v1/namespaces/n/configmaps/knative-operator-release-knative-serving-1.2.3";
        let expected = [format!("GET {map}"), format!("PATCH {map}"), "GET /api/v1/namespaces/n/configmaps".to_owned()];
        assert_eq!(*requests.lock().unwrap(), expected);
    }

    #[test]
    fn archived_release_has_the_objects_of_the_bundle() {
        let root = tempfile::tempdir().unwrap();
        let paths = [
            ("knative-serving/1.2.3/1.yaml", "a"),
            ("knative-serving/1.2.3/2.yaml", "b"),
            ("knative-serving/1.2.4/1.yaml", "c"),
            ("ingress/1.2/kourier/1.yaml", "d"),
            ("ingress/1.3/kourier/1.yaml", "e"),
            ("security-guard/0.6/1.yaml", "f"),
        ];
        for (path, name) in paths {
            let path = root.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, format!("{{apiVersion: v1, kind: X, metadata: {{name: {name}}}}}")).unwrap();
        }
        let (bundle, version) = (Bundle::open(root.path().to_owned()), "1.2.3".parse().unwrap());
        let encoded = encode(&bundle.files_of(Component::Serving, &version).unwrap()).unwrap();
        let map = manifest(name(Component::Serving, &version), Component::Serving, &version, encoded);
        let archived = Bundle::in_memory("ConfigMap a/b".into(), files(&map, &version).unwrap());
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
        let other: Version = "1.2.4".parse().unwrap();
        let missing = names(&archived, archived.release(Component::Serving, &other)).unwrap_err();
        assert!(missing.contains("cannot read ConfigMap a/b/knative-serving/1.2.4"), "{missing}");
        assert_eq!(files(&map, &other).unwrap_err().to_string(), "it has version \"1.2.3\"");
        assert!(decode(b"x").is_err());
    }
}
