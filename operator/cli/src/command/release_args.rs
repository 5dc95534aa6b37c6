//! Flags that name the source of releases.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use clap::builder::{PathBufValueParser, TypedValueParser};
use knative_operator_runtime::duration::duration;
use knative_operator_shared::api::Knative;
use knative_operator_shared::version::Version;

use knative_operator_objects::Owner;
use knative_operator_objects::plan::{Plan, Rendered};
use knative_operator_release::{
    self, Bundle, Downloads, DownloadsError, HostPolicy, Library, Release, ReleaseError, VersionSelectionError,
};
use knative_operator_render::{RenderError, Settings};

/// Where the image has the release bundle.
pub const BUNDLE: &str = "/var/run/ko";
/// Name of the release bundle in the folder of the command.
const BESIDE: &str = "bundle";
/// Heading of the flags in the help.
pub const HEADING: &str = "Release options";

/// Parses the path of a release bundle.
pub fn bundle_path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(|given: PathBuf| {
        let program = std::env::current_exe().unwrap_or_default();
        located(given, (Path::new(BUNDLE), &program))
    })
}

/// The bundle `given`; in place of `default`, if that doesn't exist, the one beside `program`,
/// where krew installs it.
fn located(given: PathBuf, (default, program): (&Path, &Path)) -> PathBuf {
    let beside = program.parent().map(|folder| folder.join(BESIDE));
    beside.filter(|beside| given == default && !given.is_dir() && beside.is_dir()).unwrap_or(given)
}

/// A text is no full version.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a full version such as v1.34.0")]
struct InvalidMinimum(String);

/// Parses a minimum Kubernetes version as Knative's components do (`knative.dev/pkg/version`):
/// they don't start with another text. An empty one is none.
fn minimum_version(text: &str) -> Result<String, InvalidMinimum> {
    let bare = text.strip_prefix('v').unwrap_or(text);
    let number = bare.split(['-', '+']).next().unwrap_or_default();
    let is_number = number.chars().all(|c| c.is_ascii_digit() || c == '.');
    let is_full = is_number && number.split('.').count() == 3 && bare.parse::<Version>().is_ok();
    if text.is_empty() || is_full { Ok(text.to_owned()) } else { Err(InvalidMinimum(text.to_owned())) }
}

/// A text is no version of Knative.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("\"{0}\" is not a version such as 1.22.1, 1.22 or latest")]
pub struct InvalidVersion(String);

/// Parses a version of Knative: what `spec.version` may be.
pub fn knative_version(text: &str) -> Result<String, InvalidVersion> {
    if Version::is_well_formed(text) { Ok(text.to_owned()) } else { Err(InvalidVersion(text.to_owned())) }
}

/// Source of releases, and render settings.
#[derive(Clone, Debug, clap::Args)]
pub struct ReleaseArgs {
    /// Path of the release bundle. If the default doesn't exist, it is the folder bundle beside the
    /// command.
    #[arg(long, env = "KO_DATA_PATH", default_value = BUNDLE, value_name = "PATH", help_heading = HEADING,
        value_parser = bundle_path())]
    pub releases: PathBuf,
    /// Time limit for the download of a manifest from a URL in a spec.
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration, help_heading = HEADING)]
    pub download_timeout: Duration,
    /// Minimum Kubernetes version that Knative's components accept, such as v1.34.0. Defaults to
    /// their own minimum.
    #[arg(long, env = "KUBERNETES_MIN_VERSION", value_name = "VERSION", value_parser = minimum_version,
        help_heading = HEADING)]
    pub kubernetes_min_version: Option<String>,
}

/// Why a resource can't be rendered.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The source of releases can't be opened.
    #[error(transparent)]
    Source(#[from] DownloadsError),
    /// The version is not available.
    #[error("spec.version: {0}")]
    Version(#[source] VersionSelectionError),
    /// The release can't be assembled.
    #[error(transparent)]
    Release(#[from] ReleaseError),
    /// The spec can't be rendered.
    #[error(transparent)]
    Render(#[from] RenderError),
}

impl From<VersionSelectionError> for InputError {
    fn from(error: VersionSelectionError) -> Self {
        match error {
            VersionSelectionError::Bundle(error) => Self::Release(error),
            error => Self::Version(error),
        }
    }
}

impl ReleaseArgs {
    /// Reads releases from the bundle and from URLs of `hosts`.
    pub fn library(&self, hosts: HostPolicy) -> Result<Library, DownloadsError> {
        let downloads = Downloads::new(self.download_timeout, hosts)?;
        Ok(Library { bundle: Bundle::open(self.releases.clone()), downloads, archive: None, keeps_installed: false })
    }

    /// Whether somebody named the release bundle: another one than the default.
    pub fn is_bundle_named(&self) -> bool {
        self.releases != Path::new(BUNDLE)
    }

    /// Settings of rendering.
    pub fn settings(&self) -> Settings {
        Settings { kubernetes_min_version: self.kubernetes_min_version.clone().filter(|v| !v.is_empty()) }
    }

    /// The plan of `resource`, whose anchor has the uid `anchor`, and warnings.
    pub async fn plan(&self, resource: &Knative, anchor: &str) -> Result<(Plan, Vec<String>), String> {
        let what = format!("{} {}", resource.component(), resource.name());
        let (rendered, release) = self.render(resource).await.map_err(|error| format!("{what}: {error}"))?;
        let plan = Plan::new(Arc::new(rendered), &Owner::of(resource, anchor));
        let unmatched = knative_operator_render::names(release.objects()).unmatched(resource);
        let warnings = unmatched.iter().map(ToString::to_string).chain(release.warnings);
        Ok((plan, warnings.map(|warning| format!("{what}: {warning}")).collect()))
    }

    /// The objects of `resource`, and its release.
    pub async fn render(&self, resource: &Knative) -> Result<(Rendered, Release), InputError> {
        let library = self.library(HostPolicy::any())?;
        let version = knative_operator_release::select_version(&library.bundle, resource, false)?;
        self.render_version(&library, resource, &version).await
    }

    /// The objects of `resource` in `version`, and its release.
    pub async fn render_version(
        &self,
        library: &Library,
        resource: &Knative,
        version: &Version,
    ) -> Result<(Rendered, Release), InputError> {
        let release = library.release(resource, version).await?;
        // The page has tabs that wait for changes.
        let rendered = tokio::task::block_in_place(|| {
            knative_operator_render::objects(resource, version, release.objects(), &self.settings())
        });
        Ok((rendered?, release))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minimum_version_is_one_that_knative_parses() {
        for text in ["v1.34.0", "1.34.0", "v1.34.0-rc.1", "v1.34.0+k3s1", ""] {
            assert_eq!(minimum_version(text).as_deref(), Ok(text));
        }
        for text in ["foo", "v1.34", "1", "vv1.34.0", "v", " v1.34.0"] {
            assert_eq!(minimum_version(text), Err(InvalidMinimum(text.to_owned())));
        }
    }

    #[test]
    fn bundle_beside_the_command_replaces_a_default_that_does_not_exist() {
        let root = tempfile::tempdir().unwrap();
        let path = |name: &str| root.path().join(name);
        let (default, program) = (path("default"), path("bin/program"));
        let of = |given: &str| located(path(given), (&default, &program));
        assert_eq!(of("default"), path("default"));
        std::fs::create_dir_all(path("bin/bundle")).unwrap();
        assert_eq!((of("default"), of("other")), (path("bin/bundle"), path("other")));
        std::fs::create_dir(path("default")).unwrap();
        assert_eq!(of("default"), path("default"));
    }
}
