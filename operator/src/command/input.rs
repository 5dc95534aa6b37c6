//! The file with custom resources that subcommands read.

use std::sync::Arc;

use knative_operator_shared::api::Knative;

use super::read;
use super::release_args::ReleaseArgs;
use crate::object::Owner;
use crate::release::{self, DownloadsError, HostPolicy, Release, ReleaseError, VersionSelectionError};
use crate::render::plan::{Plan, Rendered};
use crate::render::{self, RenderError};

/// The file with custom resources, and the source of releases.
#[derive(Clone, Debug, clap::Args)]
pub struct Input {
    /// File with custom resources, YAML or JSON; - for stdin.
    #[arg(short = 'f', long, value_name = "FILE")]
    filename: String,
    #[command(flatten)]
    releases: ReleaseArgs,
}

/// Why a resource can't be rendered.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The source of releases can't be opened.
    #[error(transparent)]
    Source(#[from] DownloadsError),
    /// The version is not available.
    #[error("spec.version: {0}")]
    Version(#[from] VersionSelectionError),
    /// The release can't be assembled.
    #[error(transparent)]
    Release(#[from] ReleaseError),
    /// The spec can't be rendered.
    #[error(transparent)]
    Render(#[from] RenderError),
}

impl Input {
    /// Name of the file.
    pub fn from(&self) -> &str {
        if self.filename == "-" { "stdin" } else { &self.filename }
    }

    /// The custom resources in the file, and warnings.
    pub fn resources(&self) -> Result<(Vec<Knative>, Vec<String>), String> {
        read::resources(&self.text()?).map_err(|why| format!("{}: {why}", self.from()))
    }

    /// Contents of the file.
    pub fn text(&self) -> Result<String, String> {
        read::text(&self.filename)
    }

    /// Path of the release bundle.
    pub fn bundle(&self) -> &std::path::Path {
        &self.releases.releases
    }

    /// The plan of `resource`, whose anchor has the uid `anchor`, and warnings.
    pub async fn plan(&self, resource: &Knative, anchor: &str) -> Result<(Plan, Vec<String>), String> {
        let what = format!("{} {}", resource.component(), resource.name());
        let (rendered, release) =
            self.render(resource).await.map_err(|error| format!("{}: {what}: {error}", self.from()))?;
        let plan = Plan::new(Arc::new(rendered), &Owner::of(resource, anchor));
        let unmatched = render::names(release.objects()).unmatched(resource);
        let warnings = unmatched.iter().map(ToString::to_string).chain(release.warnings);
        Ok((plan, warnings.map(|warning| format!("{what}: {warning}")).collect()))
    }

    /// The objects of `resource`, and its release.
    pub async fn render(&self, resource: &Knative) -> Result<(Rendered, Release), InputError> {
        let library = self.releases.library(HostPolicy::any())?;
        let version = release::select_version(&library.bundle, resource)?;
        let release = library.release(resource, &version).await?;
        let rendered = render::objects(resource, &version, release.objects(), &self.releases.settings())?;
        Ok((rendered, release))
    }
}
