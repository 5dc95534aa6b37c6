//! Assembles everything that a resource asks for: its release or own manifests, ingresses or
//! sources, the security guard, and additional manifests.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use knative_operator_shared::api::{CommonSpec, Component, Knative, ManifestSource};
use knative_operator_shared::label::APP_VERSION;
use knative_operator_shared::version::Version;

use super::bundle::{Bundle, Objects, ReleaseError};
use super::download::Downloads;
use super::guard;
use super::source::{self, Source};
use crate::object::CompactObject;
use crate::object::text;

/// Released objects, before rendering.
#[derive(Clone, Debug, Default)]
pub struct Release {
    parts: Vec<Objects>,
    /// Sources for `status.manifests`: the release or the manifests instead of it, the additional
    /// ones, and the ingresses or sources, each as one string.
    pub manifests: Vec<String>,
    /// Parts that were left out, with the reason.
    pub warnings: Vec<String>,
}

impl Release {
    /// Whether it has the same objects as `other`.
    pub fn is_same(&self, other: &Self) -> bool {
        self.parts.len() == other.parts.len() && self.parts.iter().zip(&other.parts).all(|(a, b)| Arc::ptr_eq(a, b))
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
}

impl Library {
    /// Assembles the release that `resource` asks for, in `version`.
    pub async fn release(&self, resource: &Knative, version: &Version) -> Result<Release, ReleaseError> {
        let CommonSpec { manifests, additional_manifests, .. } = resource.common();
        let mut release = Release::default();
        if manifests.is_empty() {
            let directory = self.bundle.release(resource.component(), version);
            let objects = self.objects(&directory).map_err(|error| match error {
                ReleaseError::Directory { .. } => self.lacking(resource, version).unwrap_or(error),
                other => other,
            })?;
            release.parts.push(objects);
            release.manifests.push(directory.display().to_string());
        } else {
            self.add_sources(&mut release, "spec.manifests", manifests, version).await?;
        }
        let mut names = Vec::new();
        for (field, directory) in optional(&self.bundle, resource, version) {
            let missing =
                || format!("the release bundle has no {} for version {}", directory.display(), version.minor());
            match self.objects(&directory) {
                Ok(objects) => {
                    release.parts.push(objects);
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
        if let Some(directory) = guard::directory(&self.bundle, resource, version)? {
            release.parts.push(self.objects(&directory)?);
        }
        if !additional_manifests.is_empty() {
            self.add_sources(&mut release, "spec.additionalManifests", additional_manifests, version).await?;
        }
        if !names.is_empty() {
            release.manifests.push(names.join(","));
        }
        Ok(release)
    }

    /// Why there is no release of `version` although the bundle has others; `None` if it has none.
    fn lacking(&self, resource: &Knative, version: &Version) -> Option<ReleaseError> {
        let component = resource.component();
        let mut all = self.bundle.versions(component).ok().filter(|all| !all.is_empty())?;
        all.sort();
        let next = all.iter().filter(|next| next.may_follow(Some(version), component.kind()).is_ok());
        let next: Vec<String> = next.map(ToString::to_string).collect();
        let available = if next.is_empty() { "none".to_owned() } else { next.join(", ") };
        Some(ReleaseError::Lacking { version: version.clone(), available })
    }

    fn objects(&self, path: &Path) -> Result<Objects, ReleaseError> {
        // Parsing takes tens of milliseconds, once per directory.
        tokio::task::block_in_place(|| self.bundle.objects(path))
    }

    async fn add_sources(
        &self,
        release: &mut Release,
        field: &str,
        given: &[ManifestSource],
        version: &Version,
    ) -> Result<(), ReleaseError> {
        let mut names = Vec::new();
        for (index, manifest) in given.iter().enumerate() {
            let field = format!("{field}[{index}].URL");
            let invalid = |why: String| ReleaseError::Source { field: field.clone(), why };
            for source in source::sources(manifest, version).map_err(invalid)? {
                let failed = |why: String| invalid(format!("{source}: {why}"));
                let objects = match &source {
                    Source::Url(url) => self.downloads.objects(url).await.map_err(|e| failed(e.to_string()))?,
                    Source::Bundled(path) => {
                        let path = source::within(self.bundle.root(), path).map_err(invalid)?;
                        self.objects(&path).map_err(|e| invalid(e.to_string()))?
                    }
                };
                if objects.is_empty() {
                    return Err(failed("there is no resource available in the target manifests".to_owned()));
                }
                check_versions(&objects, version).map_err(failed)?;
                names.push(source.to_string());
                release.parts.push(objects);
            }
        }
        release.manifests.push(names.join(","));
        Ok(())
    }
}

/// Directories of the ingresses or sources that `resource` enables, with the fields that enable
/// them.
fn optional(bundle: &Bundle, resource: &Knative, version: &Version) -> Vec<(String, PathBuf)> {
    let (field, family) = match resource.component() {
        Component::Serving => ("spec.ingress", "ingress"),
        Component::Eventing => ("spec.source", "eventing-source"),
    };
    resource.extras().into_iter().map(|name| (format!("{field}.{name}"), bundle.extra(family, version, name))).collect()
}

/// Fails if an object's version label has another minor version than `version`.
fn check_versions(objects: &Objects, version: &Version) -> Result<(), String> {
    for object in objects.iter().map(CompactObject::parse) {
        let label = object["metadata"]["labels"][APP_VERSION].as_str();
        let Some(label) = label.filter(|l| !l.parse::<Version>().is_ok_and(|v| v.same_minor(version))) else {
            continue;
        };
        return Err(format!(
            "the version of the manifests {label} of the component {} does not match the target version of the operator CR {version}; change spec.version or the manifest",
            text(&object, "/metadata/name")
        ));
    }
    Ok(())
}
