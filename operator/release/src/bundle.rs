//! A release bundle: its versions and their objects, parsed once.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use knative_operator_shared::api::Component;
use knative_operator_shared::version::Version;

use super::parse::{self, ManifestError};
use knative_operator_objects::CompactObject;
use knative_operator_objects::ObjectId;

/// How to get a release bundle, as a clause.
pub const BUNDLE_HINT: &str =
    "--releases must name a release bundle; to build one, in a clone of the repository: make bundle OUT=bundle";

/// Why a release is not available.
#[derive(Debug, thiserror::Error)]
pub enum ReleaseError {
    /// A directory can't be read.
    #[error("cannot read {path}: {source}; {}", BUNDLE_HINT)]
    Directory {
        /// The directory.
        path: PathBuf,
        /// Its error.
        source: std::io::Error,
    },
    /// It lacks an installed version.
    #[error(
        "the operator's release bundle lacks the installed version {version}: the installation stays as it is, and what changes there is not \
         repaired; install an operator whose bundle has {version}, or {available}"
    )]
    Lacking {
        /// The installed version.
        version: Version,
        /// What to set instead.
        available: String,
    },
    /// A file can't be read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// Its error.
        source: std::io::Error,
    },
    /// A file can't be parsed.
    #[error("cannot parse {path}: {why}")]
    Unparsable {
        /// The file.
        path: PathBuf,
        /// The error with its line.
        why: ManifestError,
    },
    /// A directory has no objects.
    #[error("there is no resource available in the target manifests {0}")]
    Empty(PathBuf),
    /// A field of the spec names something that is not available.
    #[error("{field}: {why}")]
    Source {
        /// Path of the field.
        field: String,
        /// The reason.
        why: String,
    },
}

/// Objects of one directory, shared by all installations.
pub type Objects = Arc<Vec<CompactObject>>;

/// A release bundle.
#[derive(Debug)]
pub struct Bundle {
    root: PathBuf,
    /// Its files by path, where they are not on disk.
    files: Option<BTreeMap<PathBuf, String>>,
    parsed: Mutex<HashMap<PathBuf, Objects>>,
}

impl Bundle {
    /// The bundle at `root`, which is read when needed.
    pub fn open(root: PathBuf) -> Self {
        Self { root, files: None, parsed: Mutex::default() }
    }

    /// The bundle with these `files` by path, which is called `root`.
    pub fn in_memory(root: PathBuf, files: BTreeMap<PathBuf, String>) -> Self {
        let files = files.into_iter().map(|(path, text)| (root.join(path), text)).collect();
        Self { root, files: Some(files), parsed: Mutex::default() }
    }

    /// Its root directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Versions of `component` in the bundle, unordered. Directories without a version as name are
    /// ignored.
    pub fn versions(&self, component: Component) -> Result<Vec<Version>, ReleaseError> {
        let names = self.names(&self.root.join(component.canonical()))?;
        Ok(names.iter().filter_map(|name| name.parse().ok()).collect())
    }

    /// Names in `family`, such as `ingress`, by version; empty if there are none.
    pub fn extras(&self, family: &str) -> BTreeMap<Version, Vec<String>> {
        let directory = self.root.join(family);
        let versions =
            self.names(&directory).unwrap_or_default().into_iter().filter_map(|name| Some((name.parse().ok()?, name)));
        versions.map(|(version, name)| (version, self.names(&directory.join(name)).unwrap_or_default())).collect()
    }

    /// The newest release of the security guard.
    pub fn newest_guard(&self) -> Result<String, ReleaseError> {
        let newest = self.extras("security-guard").into_keys().next_back();
        newest.map(|version| version.to_string()).ok_or_else(|| ReleaseError::Empty(self.root.join("security-guard")))
    }

    /// Directory of `version` of `component`.
    pub fn release(&self, component: Component, version: &Version) -> PathBuf {
        self.root.join(component.canonical()).join(version.to_string())
    }

    /// Directory of the ingress or source `name` in `family` for `version`.
    pub fn extra(&self, family: &str, version: &Version, name: &str) -> PathBuf {
        self.root.join(family).join(version.minor()).join(name)
    }

    /// Objects of `path`, if they are parsed.
    pub fn parsed(&self, path: &Path) -> Option<Objects> {
        self.parsed.lock().unwrap_or_else(PoisonError::into_inner).get(path).cloned()
    }

    /// Objects of `path`, a file, or the files of a directory ordered by name; identical duplicates
    /// are dropped. The first call parses, which takes tens of milliseconds: call it where blocking
    /// is allowed.
    pub fn objects(&self, path: &Path) -> Result<Objects, ReleaseError> {
        if let Some(objects) = self.parsed(path) {
            return Ok(objects);
        }
        let mut objects: Vec<CompactObject> = Vec::new();
        let mut last: HashMap<ObjectId, usize> = HashMap::new();
        for (path, text) in self.texts(path)? {
            for object in parse::objects(&text).map_err(|why| ReleaseError::Unparsable { path, why })? {
                let object = CompactObject::new(&object);
                let before = last.insert(object.id().clone(), objects.len());
                match before.filter(|position| objects[*position].text() == object.text()) {
                    Some(position) => drop(last.insert(object.id().clone(), position)),
                    None => objects.push(object),
                }
            }
        }
        if objects.is_empty() {
            return Err(ReleaseError::Empty(path.to_owned()));
        }
        let objects = Arc::new(objects);
        let mut parsed = self.parsed.lock().unwrap_or_else(PoisonError::into_inner);
        // Drop objects that no installation uses any more.
        parsed.retain(|_, others| Arc::strong_count(others) > 1);
        parsed.insert(path.to_owned(), Arc::clone(&objects));
        Ok(objects)
    }

    /// The files that installations of `version` of `component` may need, by path without the root:
    /// the release, and all ingresses or sources of its minor version.
    pub fn files_of(&self, component: Component, version: &Version) -> Result<BTreeMap<PathBuf, String>, ReleaseError> {
        let family = family(component);
        let mut directories = vec![self.release(component, version)];
        let extras = self.extras(family).into_iter().filter(|(minor, _)| minor.same_minor(version));
        directories.extend(extras.flat_map(|(_, names)| names).map(|name| self.extra(family, version, &name)));
        if component == Component::Serving {
            let guards = self.extras("security-guard").into_keys();
            directories.extend(guards.map(|guard| self.root.join("security-guard").join(guard.to_string())));
        }
        let mut files = BTreeMap::new();
        for directory in directories {
            let texts = self.texts(&directory)?.into_iter();
            files.extend(
                texts.map(|(path, text)| (path.strip_prefix(&self.root).map(Path::to_owned).unwrap_or(path), text)),
            );
        }
        Ok(files)
    }

    /// Path and text of `path`, a file, or of the files of a directory ordered by name.
    fn texts(&self, path: &Path) -> Result<Vec<(PathBuf, String)>, ReleaseError> {
        if let Some(files) = &self.files {
            let found = files.iter().filter(|(file, _)| *file == path || file.parent() == Some(path));
            let found: Vec<_> = found.map(|(path, text)| (path.clone(), text.clone())).collect();
            return if found.is_empty() { Err(missing(path)) } else { Ok(found) };
        }
        let paths = if path.is_file() {
            vec![path.to_owned()]
        } else {
            self.names(path)?.into_iter().map(|name| path.join(name)).collect()
        };
        let read = |path: PathBuf| match std::fs::read_to_string(&path) {
            Ok(text) => Ok((path, text)),
            Err(source) => Err(ReleaseError::File { path, source }),
        };
        paths.into_iter().filter(|file| file.is_file()).map(read).collect()
    }

    /// Names in `directory`, sorted, without hidden ones (Kubernetes creates them in mounted
    /// volumes).
    fn names(&self, directory: &Path) -> Result<Vec<String>, ReleaseError> {
        let Some(files) = &self.files else { return names(directory) };
        let below = files.keys().filter_map(|path| path.strip_prefix(directory).ok()?.components().next());
        let mut names: Vec<String> = below.map(|name| name.as_os_str().to_string_lossy().into_owned()).collect();
        names.dedup();
        if names.is_empty() { Err(missing(directory)) } else { Ok(names) }
    }
}

/// Directory of the ingresses or sources of `component`.
pub fn family(component: Component) -> &'static str {
    match component {
        Component::Serving => "ingress",
        Component::Eventing => "eventing-source",
    }
}

/// That a bundle in memory lacks `path`.
fn missing(path: &Path) -> ReleaseError {
    ReleaseError::Directory { path: path.to_owned(), source: std::io::ErrorKind::NotFound.into() }
}

/// File names in `directory`, sorted, without hidden ones (Kubernetes creates them in mounted
/// volumes).
fn names(directory: &Path) -> Result<Vec<String>, ReleaseError> {
    let failed = |source| ReleaseError::Directory { path: directory.to_owned(), source };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        let name = entry.map_err(failed)?.file_name();
        names.extend(name.to_str().filter(|n| !n.starts_with('.')).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_names_missing_or_unparsable_file() {
        let root = tempfile::tempdir().unwrap();
        let bundle = Bundle::open(root.path().join("nothing"));
        let error = bundle.versions(Component::Serving).unwrap_err().to_string();
        assert!(error.contains("cannot read") && error.contains("--releases"), "{error}");

        let dir = root.path().join("knative-serving/1.2.3");
        std::fs::create_dir_all(&dir).unwrap();
        let bundle = Bundle::open(root.path().to_owned());
        assert!(matches!(bundle.objects(&dir), Err(ReleaseError::Empty(_))));
        std::fs::write(dir.join("1.yaml"), "a: [").unwrap();
        let error = bundle.objects(&dir).unwrap_err().to_string();
        assert!(error.contains("1.yaml:"), "{error}");
        std::fs::write(dir.join("1.yaml"), "{apiVersion: v1, kind: X, metadata: {name: a}}").unwrap();
        std::fs::write(dir.join("..data"), "[").unwrap();
        assert_eq!(bundle.objects(&dir).unwrap().len(), 1);
        assert_eq!(bundle.versions(Component::Serving).unwrap().len(), 1);
    }
}
