//! Assembles everything that a resource asks for: its release or own manifests, ingresses or
//! sources, the security guard, and additional manifests.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use knative_operator_runtime::compute::compute;
use knative_operator_shared::api::{CommonSpec, Component, Knative, ManifestSource};
use knative_operator_shared::label::APP_VERSION;
use knative_operator_shared::version::Version;

use super::archive::Archive;
use super::bundle::{Bundle, Objects, ReleaseError, family};
use super::download::Downloads;
use super::guard;
use super::source::{self, Source};
use knative_operator_objects::CompactObject;
use knative_operator_objects::text;

/// Maximum number of sources in a list of manifests, which is that of the manifests in the cache.
const MAX_SOURCES: usize = 256;
/// Maximum number of objects of all manifests before rendering, duplicates included. An
/// installation has half as many at most.
const MAX_OBJECTS: usize = 10_000;
/// Maximum size of these objects, as compact JSON.
const MAX_SIZE: usize = 16 << 20;
/// Time after which no further manifest is downloaded for a resource. Each has a limit of its own;
/// meanwhile, the resource takes the place of others.
const MAX_TIME: Duration = Duration::from_secs(300);

/// Why manifests are refused, regardless of their contents.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum TooMuch {
    #[error("all manifests together have more than {} objects", MAX_OBJECTS)]
    Objects,
    #[error("all manifests together have more than {} MiB", MAX_SIZE >> 20)]
    Bytes,
}

/// Released objects, before rendering.
#[derive(Clone, Debug, Default)]
pub struct Release {
    parts: Vec<Objects>,
    /// Number of objects and of their bytes.
    size: (usize, usize),
    /// Sources for `status.manifests`: the release or the manifests instead of it, the additional
    /// ones, and the ingresses or sources, each as one string.
    pub manifests: Vec<String>,
    /// Parts that were left out, with the reason.
    pub warnings: Vec<String>,
    /// Since the bundle lacks the version: where it is from instead.
    archived: Option<Arc<Bundle>>,
    /// What to do then.
    pub advice: Option<String>,
}

impl Release {
    /// Whether it has the same objects as `other`.
    pub fn is_same(&self, other: &Self) -> bool {
        self.parts.len() == other.parts.len() && self.parts.iter().zip(&other.parts).all(|(a, b)| Arc::ptr_eq(a, b))
    }

    /// Adds `part`, unless there is too much then: the author of a resource names any number of
    /// manifests.
    fn add(&mut self, part: Objects) -> Result<(), TooMuch> {
        let bytes: usize = part.iter().map(|object| object.text().len()).sum();
        self.size = (self.size.0 + part.len(), self.size.1 + bytes);
        if self.size.0 > MAX_OBJECTS {
            return Err(TooMuch::Objects);
        }
        if self.size.1 > MAX_SIZE {
            return Err(TooMuch::Bytes);
        }
        self.parts.push(part);
        Ok(())
    }

    /// The objects in order, possibly with duplicates.
    pub fn objects(&self) -> impl Iterator<Item = &CompactObject> + Clone {
        self.parts.iter().flat_map(|part| part.iter())
    }
}

/// Sources of releases.
#[derive(Debug)]
pub struct Library {
    /// The bundle on disk.
    pub bundle: Bundle,
    /// Manifests from URLs.
    pub downloads: Downloads,
    /// Releases that the bundle lacks; `None` without a hub.
    pub archive: Option<Archive>,
    /// Whether an installed version stays while it is one that the spec means.
    pub keeps_installed: bool,
}

impl Library {
    /// Keeps `version`, which `resource` has or is about to have, in the archive: see
    /// [`Archive::keep`].
    pub fn keep(&self, resource: &Knative, version: &Version, is_new: bool) {
        if let Some(archive) = self.archive.as_ref().filter(|_| resource.common().manifests.is_empty()) {
            archive.keep(self.bundle.root(), resource.component(), version, is_new);
        }
    }

    /// Assembles the release that `resource` asks for, in `version`.
    pub async fn release(&self, resource: &Knative, version: &Version) -> Result<Release, ReleaseError> {
        let CommonSpec { manifests, additional_manifests, .. } = resource.common();
        let namespace = resource.namespace();
        let (mut release, until) = (Release::default(), Instant::now() + MAX_TIME);
        // All parts are from the same bundle: the one that the version was installed from.
        let archived = if manifests.is_empty() { self.archived(resource.component(), version).await? } else { None };
        let bundle = archived.as_deref().unwrap_or(&self.bundle);
        if manifests.is_empty() {
            let directory = bundle.release(resource.component(), version);
            let parsed = objects(namespace, bundle, &directory).await.map_err(|error| match error {
                ReleaseError::Directory { .. } => self.lacking(resource, version).unwrap_or(error),
                other => other,
            })?;
            release.parts.push(parsed);
            release.manifests.push(directory.display().to_string());
            release.advice = archived.as_ref().map(|archived| self.advice(resource, version, archived));
        } else {
            self.add_sources(&mut release, namespace, "spec.manifests", manifests, version, until).await?;
        }
        let mut names = Vec::new();
        for (field, directory) in optional(bundle, resource, version) {
            let missing =
                || format!("the release bundle has no {} for version {}", directory.display(), version.minor());
            match objects(namespace, bundle, &directory).await {
                Ok(found) => {
                    release.parts.push(found);
                    names.push(directory.display().to_string());
                }
                // Own manifests of a version that the bundle lacks are expected to include the
                // rest.
                Err(_) if !manifests.is_empty() => {
                    release.warnings.push(format!("{field}: not installed: {}", missing()));
                }
                Err(ReleaseError::Directory { .. }) => return Err(ReleaseError::Source { field, why: missing() }),
                Err(error) => return Err(error),
            }
        }
        if let Some(directory) = guard::directory(bundle, resource, version)? {
            release.parts.push(objects(namespace, bundle, &directory).await?);
        }
        if !additional_manifests.is_empty() {
            let field = "spec.additionalManifests";
            self.add_sources(&mut release, namespace, field, additional_manifests, version, until).await?;
        }
        if !names.is_empty() {
            release.manifests.push(names.join(","));
        }
        release.archived = archived;
        Ok(release)
    }

    /// Why there is no release of `version` although the bundle has others; `None` if it has none.
    fn lacking(&self, resource: &Knative, version: &Version) -> Option<ReleaseError> {
        self.bundle.versions(resource.component()).ok().filter(|all| !all.is_empty())?;
        let available = match self.next(resource, version) {
            Some(next) => format!("set spec.version to one of: {next}"),
            None => "one with a version that may follow it".to_owned(),
        };
        Some(ReleaseError::Lacking { version: version.clone(), available })
    }

    /// The versions of the bundle that may follow `version`, for people; `None` if there are none.
    fn next(&self, resource: &Knative, version: &Version) -> Option<String> {
        let component = resource.component();
        let mut all = self.bundle.versions(component).ok()?;
        all.sort();
        let next = all.iter().filter(|next| next.may_follow(Some(version), component.kind()).is_ok());
        let next: Vec<String> = next.map(ToString::to_string).collect();
        (!next.is_empty()).then(|| next.join(", "))
    }

    /// Whether the archive has `version` of `component`, which the bundle lacks.
    pub async fn has_archived(&self, component: Component, version: &Version) -> Result<bool, ReleaseError> {
        Ok(self.archived(component, version).await?.is_some())
    }

    /// The archived release of `version`, if the bundle lacks it.
    async fn archived(&self, component: Component, version: &Version) -> Result<Option<Arc<Bundle>>, ReleaseError> {
        match &self.archive {
            Some(archive) if !self.bundle.release(component, version).is_dir() => {
                archive.read(component, version).await
            }
            Some(_) | None => Ok(None),
        }
    }

    fn advice(&self, resource: &Knative, version: &Version, archived: &Bundle) -> String {
        let next = match self.next(resource, version) {
            Some(next) => format!("Set spec.version to one of these, while a bundle has them: {next}"),
            None => "No version of the bundle may follow it: install an operator that has one".to_owned(),
        };
        format!(
            "the operator's release bundle lacks the installed version {version}, which is kept and repaired from {}. {next}",
            archived.root().display()
        )
    }

    async fn add_sources(
        &self,
        release: &mut Release,
        namespace: &str,
        field: &str,
        given: &[ManifestSource],
        version: &Version,
        until: Instant,
    ) -> Result<(), ReleaseError> {
        let mut names: Vec<String> = Vec::new();
        for (index, manifest) in given.iter().enumerate() {
            let field = format!("{field}[{index}].URL");
            let invalid = |why: String| ReleaseError::Source { field: field.clone(), why };
            for source in source::sources(manifest, version).map_err(|e| invalid(e.to_string()))? {
                if names.len() == MAX_SOURCES {
                    return Err(invalid(format!("is one of more than {MAX_SOURCES} manifests; join some of them")));
                }
                let failed = |why: String| invalid(format!("{source}: {why}"));
                let found = match &source {
                    Source::Url(_) if Instant::now() >= until => {
                        let limit = MAX_TIME.as_secs();
                        return Err(failed(format!("the manifests before it took {limit} s; join some of them")));
                    }
                    Source::Url(url) => {
                        self.downloads.objects(namespace, url).await.map_err(|e| failed(e.to_string()))?
                    }
                    Source::Bundled(path) => {
                        let path = source::within(self.bundle.root(), path).map_err(|e| invalid(e.to_string()))?;
                        objects(namespace, &self.bundle, &path).await.map_err(|e| invalid(e.to_string()))?
                    }
                };
                if found.is_empty() {
                    return Err(failed("there is no resource available in the target manifests".to_owned()));
                }
                if let Some(why) = other_version(&found, version) {
                    // A fixed one fits no version on the way to another minor version.
                    let hint = "; in the URL, ${VERSION} stands for each version that is installed";
                    return Err(failed(why + hint));
                }
                names.push(source.to_string());
                release.add(found).map_err(|error| failed(error.to_string()))?;
            }
        }
        release.manifests.push(names.join(","));
        Ok(())
    }
}

/// The objects in `path`, for a resource in `namespace`.
async fn objects(namespace: &str, bundle: &Bundle, path: &Path) -> Result<Objects, ReleaseError> {
    match bundle.parsed(path) {
        Some(objects) => Ok(objects),
        // Parsing takes tens of milliseconds, once per directory.
        None => compute(namespace, || bundle.objects(path)).await,
    }
}

/// Directories of the ingresses or sources that `resource` enables, with the fields that enable
/// them.
fn optional(bundle: &Bundle, resource: &Knative, version: &Version) -> Vec<(String, PathBuf)> {
    let field = match resource.component() {
        Component::Serving => "spec.ingress",
        Component::Eventing => "spec.source",
    };
    let family = family(resource.component());
    resource.extras().into_iter().map(|name| (format!("{field}.{name}"), bundle.extra(family, version, name))).collect()
}

/// What is wrong if an object's version label has another minor version than `version`.
fn other_version(objects: &Objects, version: &Version) -> Option<String> {
    objects.iter().map(CompactObject::parse).find_map(|object| {
        let label = object["metadata"]["labels"][APP_VERSION].as_str();
        let label = label.filter(|l| !l.parse::<Version>().is_ok_and(|v| v.same_minor(version)))?;
        Some(format!(
            "the version of the manifests {label} of the component {} does not match the target version of the operator CR {version}; change spec.version or the manifest",
            text(&object, "/metadata/name")
        ))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::host_policy::HostPolicy;

    #[test]
    fn manifests_have_limits_together() {
        let object = |bytes: usize| {
            CompactObject::new(&json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"},
                "data": {"a": "x".repeat(bytes)}}))
        };
        let (mut release, part): (_, Objects) = (Release::default(), Arc::new(vec![object(1); 1000]));
        (0..10).for_each(|_| release.add(Arc::clone(&part)).unwrap());
        assert_eq!(release.add(part), Err(TooMuch::Objects));
        let (mut release, part): (_, Objects) = (Release::default(), Arc::new(vec![object(1 << 20)]));
        (0..15).for_each(|_| release.add(Arc::clone(&part)).unwrap());
        assert_eq!(release.add(part), Err(TooMuch::Bytes));
    }

    #[tokio::test]
    async fn list_of_manifests_has_a_limit() {
        knative_operator_runtime::install_crypto();
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("a.yaml");
        std::fs::write(&path, "{apiVersion: v1, kind: X, metadata: {name: a}}").unwrap();
        let bundle = Bundle::open(root.path().to_owned());
        bundle.objects(&path).unwrap();
        let downloads = Downloads::new(Duration::from_secs(1), HostPolicy::any()).unwrap();
        let library = Library { bundle, downloads, archive: None, keeps_installed: false };
        let version: Version = "1.22.1".parse().unwrap();
        for (number, is_read) in [(MAX_SOURCES, true), (MAX_SOURCES + 1, false)] {
            let given = [ManifestSource { url: "a.yaml,".repeat(number) }];
            let (mut release, until) = (Release::default(), Instant::now() + MAX_TIME);
            let read = library.add_sources(&mut release, "n", "spec.manifests", &given, &version, until).await;
            assert_eq!(read.is_ok(), is_read, "{number}: {read:?}");
        }
    }

    #[tokio::test]
    async fn nothing_is_downloaded_after_the_time_of_a_resource() {
        knative_operator_runtime::install_crypto();
        let root = tempfile::tempdir().unwrap();
        let downloads = Downloads::new(Duration::from_secs(1), HostPolicy::public_and(&[])).unwrap();
        let bundle = Bundle::open(root.path().to_owned());
        let library = Library { bundle, downloads, archive: None, keeps_installed: false };
        let version: Version = "1.22.1".parse().unwrap();
        let given = [ManifestSource { url: "https://127.0.0.1:1/a.yaml".to_owned() }];
        let why = async |until| {
            let mut release = Release::default();
            let read = library.add_sources(&mut release, "n", "spec.manifests", &given, &version, until).await;
            read.unwrap_err().to_string()
        };
        let now = Instant::now();
        let (late, early) = (why(now).await, why(now + MAX_TIME).await);
        assert!(late.ends_with("the manifests before it took 300 s; join some of them"), "{late}");
        assert!(!early.contains("took 300 s"), "{early}");
    }
}
