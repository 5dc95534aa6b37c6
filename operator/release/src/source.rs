//! Sources of manifests: values of `spec.manifests[].URL` and `spec.additionalManifests[].URL`.
//! Pure.

use std::fmt;
use std::path::{Component as Part, Path, PathBuf};

use knative_operator_shared::api::ManifestSource;
use knative_operator_shared::version::Version;
use reqwest::Url;

/// One source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// Download by https.
    Url(Url),
    /// File or directory of the bundle, relative to its root or absolute.
    Bundled(PathBuf),
}

/// Without user, password and query, which may contain a credential.
impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bundled(path) => path.display().fmt(f),
            Self::Url(url) => {
                let port = url.port().map(|p| format!(":{p}")).unwrap_or_default();
                write!(f, "{}://{}{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())?;
                if url.query().is_some() { f.write_str("?…") } else { Ok(()) }
            }
        }
    }
}

/// Why a source can't be used. The text doesn't quote URLs: they may contain a password.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// There is none.
    #[error("is empty; set it to an https URL or a path in the release bundle")]
    Empty,
    /// It is a path out of the bundle.
    #[error("{0} leads out of the release bundle; name a file or directory in it, or an https URL")]
    LeadsOut(String),
    /// It is not https.
    #[error(
        "scheme {0} is not supported; serve the manifest over https, or put it into the release bundle and give its path"
    )]
    Scheme(String),
    /// It can't be parsed.
    #[error("is not a URL: {0}")]
    NotUrl(String),
    /// A path can't be resolved.
    #[error("cannot read {}: {}", .0.display(), .1)]
    Unreadable(PathBuf, std::io::Error),
    /// A link leads out of the bundle at the second path.
    #[error("{} is not in the release bundle {}", .0.display(), .1.display())]
    NotWithin(PathBuf, PathBuf),
}

/// Sources in `given`, in order: `${VERSION}` is replaced with `version`, and commas separate
/// several, as with the Go operator.
pub fn sources(given: &ManifestSource, version: &Version) -> Result<Vec<Source>, SourceError> {
    let text = given.url.replace("${VERSION}", &version.to_string());
    let sources: Vec<_> =
        text.split(',').map(str::trim).filter(|s| !s.is_empty()).map(source).collect::<Result<_, _>>()?;
    if sources.is_empty() { Err(SourceError::Empty) } else { Ok(sources) }
}

fn source(text: &str) -> Result<Source, SourceError> {
    let Some((scheme, _)) = text.split_once("://") else {
        let path = PathBuf::from(text);
        if path.components().any(|part| part == Part::ParentDir) {
            return Err(SourceError::LeadsOut(text.to_owned()));
        }
        return Ok(Source::Bundled(path));
    };
    if !scheme.eq_ignore_ascii_case("https") {
        return Err(SourceError::Scheme(scheme.to_owned()));
    }
    Url::parse(text).map(Source::Url).map_err(|error| SourceError::NotUrl(error.to_string()))
}

/// Resolves `path` in the bundle at `root`. Links are followed, and must not lead out of the
/// bundle.
pub fn within(root: &Path, path: &Path) -> Result<PathBuf, SourceError> {
    let real = |path: &Path| path.canonicalize().map_err(|error| SourceError::Unreadable(path.to_owned(), error));
    let found = root.join(path);
    if real(&found)?.starts_with(real(root)?) {
        Ok(found)
    } else {
        Err(SourceError::NotWithin(path.to_owned(), root.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(url: &str) -> Result<Vec<String>, SourceError> {
        let found = sources(&ManifestSource { url: url.to_owned() }, &"1.22.1".parse().unwrap())?;
        Ok(found.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn sources_are_parsed_and_displayed_without_secrets() {
        assert_eq!(all("https://u:p@h:8443/v${VERSION}/a.yaml?token=x").unwrap(), ["https://h:8443/v1.22.1/a.yaml?…"]);
        assert_eq!(all("knative-serving/${VERSION}, https://h/a").unwrap(), ["knative-serving/1.22.1", "https://h/a"]);
        for (wrong, expected) in [
            ("", "is empty"),
            (" , ", "is empty"),
            ("http://h/a", "scheme http is not supported; serve the manifest over https"),
            ("file:///etc/passwd", "scheme file is not supported"),
            ("../secret", "leads out of the release bundle"),
            ("https://u:secret@", "is not a URL"),
        ] {
            let error = all(wrong).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("u:secret"), "{error}");
        }
    }

    #[test]
    fn path_stays_in_bundle() {
        let (root, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        std::fs::write(root.path().join("a.yaml"), "").unwrap();
        std::os::unix::fs::symlink(outside.path(), root.path().join("link")).unwrap();
        assert!(within(root.path(), Path::new("a.yaml")).is_ok());
        assert!(within(root.path(), &root.path().join("a.yaml")).is_ok());
        assert!(matches!(within(root.path(), Path::new("link")), Err(SourceError::NotWithin(..))));
        assert!(matches!(within(root.path(), outside.path()), Err(SourceError::NotWithin(..))));
        assert!(matches!(within(root.path(), Path::new("b.yaml")), Err(SourceError::Unreadable(..))));
    }
}
