//! A bundle on disk: which versions it has, and their objects, parsed once.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use knative_operator_shared::api::Component;
use knative_operator_shared::version::Version;

use super::parse;
use crate::object::ObjectId;
use crate::packed::Packed;

/// Why a release can't be had.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// A directory can't be read.
    #[error("{path} can't be read: {source}; --releases must name a release bundle")]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file can't be read.
    #[error("{path} can't be read: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file holds no objects.
    #[error("{path} is broken: {why}")]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong, and in which line.
        why: String,
    },
    /// A directory holds no objects at all.
    #[error("there is no resource available in the target manifests {0}")]
    Empty(PathBuf),
    /// What a field of the spec asks for can't be had.
    #[error("{field}: {why}")]
    Source {
        /// Path of the field.
        field: String,
        /// Why.
        why: String,
    },
}

/// The objects of one directory, shared by everyone who installs it.
pub type Objects = Arc<Vec<Packed>>;

/// A release bundle.
#[derive(Debug)]
pub struct Bundle {
    root: PathBuf,
    parsed: Mutex<HashMap<PathBuf, Objects>>,
}

impl Bundle {
    /// The bundle at `root`. Nothing is read yet.
    pub fn at(root: PathBuf) -> Self {
        Self { root, parsed: Mutex::default() }
    }

    /// Where it is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The versions of `component` that it has, in no order. Names that are no version are not of Knative and left out.
    pub fn versions(&self, component: Component) -> Result<Vec<Version>, ReleaseError> {
        let names = names(&self.root.join(component.canonical()))?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// What there is of `family`, such as `ingress`, by version; nothing if there is none of it.
    pub fn extras(&self, family: &str) -> BTreeMap<Version, Vec<String>> {
        let directory = self.root.join(family);
        let versions =
            names(&directory).unwrap_or_default().into_iter().filter_map(|name| Some((name.parse().ok()?, name)));
        versions.map(|(version, name)| (version, names(&directory.join(name)).unwrap_or_default())).collect()
    }

    /// The newest release of the security guard.
    pub fn newest_guard(&self) -> Result<String, ReleaseError> {
        let newest = self.extras("security-guard").into_keys().next_back();
        newest.map(|version| version.to_string()).ok_or_else(|| ReleaseError::Empty(self.root.join("security-guard")))
    }

    /// The directory of `version` of `component`.
    pub fn release(&self, component: Component, version: &Version) -> PathBuf {
        self.root.join(component.canonical()).join(version.to_string())
    }

    /// The directory of `name` (an ingress or a source, by `family`) that goes with `version`.
    pub fn extra(&self, family: &str, version: &Version, name: &str) -> PathBuf {
        self.root.join(family).join(version.minor()).join(name)
    }

    /// The objects in `path`, a file or the files of a directory in the order of their names; what is repeated word for
    /// word is there once. Reads and parses on the first call, which takes tens of milliseconds: call it where blocking
    /// is allowed.
    pub fn objects(&self, path: &Path) -> Result<Objects, ReleaseError> {
        let cached = || self.parsed.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned();
        if let Some(objects) = cached() {
            return Ok(objects);
        }
        let files = if path.is_file() {
            vec![path.to_owned()]
        } else {
            names(path)?.into_iter().map(|name| path.join(name)).collect()
        };
        let mut objects: Vec<Packed> = Vec::new();
        let mut last: HashMap<ObjectId, usize> = HashMap::new();
        for path in files.into_iter().filter(|file| file.is_file()) {
            let text =
                std::fs::read_to_string(&path).map_err(|source| ReleaseError::File { path: path.clone(), source })?;
            for object in parse::objects(&text).map_err(|why| ReleaseError::Broken { path, why })? {
                let object = Packed::new(&object);
                let before = last.insert(object.id().clone(), objects.len());
                match before.filter(|place| objects[*place].text() == object.text()) {
                    Some(place) => drop(last.insert(object.id().clone(), place)),
                    None => objects.push(object),
                }
            }
        }
        if objects.is_empty() {
            return Err(ReleaseError::Empty(path.to_owned()));
        }
        let objects = Arc::new(objects);
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        // What nobody installs any more is forgotten.
        parsed.retain(|_, others| Arc::strong_count(others) > 1);
        parsed.insert(path.to_owned(), Arc::clone(&objects));
        Ok(objects)
    }
}

/// The names in `directory`, sorted; hidden ones (as Kubernetes makes them in mounted volumes) left out.
fn names(directory: &Path) -> Result<Vec<String>, ReleaseError> {
    let broken = |source| ReleaseError::Directory { path: directory.to_owned(), source };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(broken)? {
        let name = entry.map_err(broken)?.file_name();
        names.extend(name.to_str().filter(|n| !n.starts_with('.')).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_that_is_missing_or_broken_says_which_file() {
        let root = tempfile::tempdir().unwrap();
        let bundle = Bundle::at(root.path().join("nothing"));
        let error = bundle.versions(Component::Serving).unwrap_err().to_string();
        assert!(error.contains("nothing/knative-serving can't be read") && error.contains("--releases"), "{error}");

        let dir = root.path().join("knative-serving/1.2.3");
        std::fs::create_dir_all(&dir).unwrap();
        let bundle = Bundle::at(root.path().to_owned());
        assert!(matches!(bundle.objects(&dir), Err(ReleaseError::Empty(_))));
        std::fs::write(dir.join("1.yaml"), "a: [").unwrap();
        let error = bundle.objects(&dir).unwrap_err().to_string();
        assert!(error.contains("1.yaml is broken"), "{error}");
        std::fs::write(dir.join("1.yaml"), "{apiVersion: v1, kind: X, metadata: {name: a}}").unwrap();
        std::fs::write(dir.join("..data"), "[").unwrap();
        assert_eq!(bundle.objects(&dir).unwrap().len(), 1);
        assert_eq!(bundle.versions(Component::Serving).unwrap().len(), 1);
    }
}
