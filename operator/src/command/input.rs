//! The file with custom resources that subcommands read.

use knative_operator_shared::api::Knative;

use super::read;
use super::release_args::{InputError, ReleaseArgs};
use knative_operator_objects::plan::{Plan, Rendered};
use knative_operator_release::Release;

/// The file with custom resources, and the source of releases.
#[derive(Clone, Debug, clap::Args)]
pub struct Input {
    /// File with custom resources, YAML or JSON; - for stdin.
    #[arg(short = 'f', long, value_name = "FILE")]
    filename: String,
    #[command(flatten)]
    releases: ReleaseArgs,
}

impl Input {
    /// Name of the file.
    pub fn from(&self) -> &str {
        if self.filename == "-" { "stdin" } else { &self.filename }
    }

    /// The custom resources in the file, and warnings; with `namespace` for those without one. If
    /// `is_strict`, unknown fields are errors.
    pub fn resources(&self, namespace: Option<&str>, is_strict: bool) -> Result<(Vec<Knative>, Vec<String>), String> {
        let read = read::resources(&self.text()?, namespace, is_strict);
        read.map_err(|why| format!("{}: {why}", self.from()))
    }

    /// Contents of the file.
    pub fn text(&self) -> Result<String, String> {
        read::text(&self.filename)
    }

    /// Path of the release bundle.
    pub fn bundle(&self) -> &std::path::Path {
        &self.releases.releases
    }

    /// Whether somebody named the release bundle.
    pub fn is_bundle_named(&self) -> bool {
        self.releases.is_bundle_named()
    }

    /// The plan of `resource`, whose anchor has the uid `anchor`, and warnings.
    pub async fn plan(&self, resource: &Knative, anchor: &str) -> Result<(Plan, Vec<String>), String> {
        self.releases.plan(resource, anchor).await.map_err(|why| format!("{}: {why}", self.from()))
    }

    /// The objects of `resource`, and its release.
    pub async fn render(&self, resource: &Knative) -> Result<(Rendered, Release), InputError> {
        self.releases.render(resource).await
    }
}
