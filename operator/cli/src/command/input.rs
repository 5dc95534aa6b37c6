//! The custom resources and releases that subcommands read.

use knative_operator_shared::api::Knative;

use super::files::{File, FileArgs, FileResource, Unreadable};
use super::release_args::{InputError, ReleaseArgs};
use knative_operator_objects::plan::{Plan, Rendered};
use knative_operator_release::Release;

/// The files with custom resources, and the source of releases.
#[derive(Clone, Debug, clap::Args)]
pub struct Input {
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    releases: ReleaseArgs,
}

impl Input {
    /// Names of the files.
    pub fn names(&self) -> String {
        self.files.names()
    }

    /// The files, and what can't be read.
    pub fn files(&self) -> (Vec<File>, Vec<Unreadable>) {
        self.files.read()
    }

    /// The custom resources in the files, and warnings; with `namespace` for those without one. If
    /// `is_strict`, unknown fields are errors.
    pub fn resources(
        &self,
        namespace: Option<&str>,
        is_strict: bool,
    ) -> Result<(Vec<FileResource>, Vec<String>), String> {
        self.files.resources(namespace, is_strict)
    }

    /// Path of the release bundle.
    pub fn bundle(&self) -> &std::path::Path {
        &self.releases.releases
    }

    /// Whether somebody named the release bundle.
    pub fn is_bundle_named(&self) -> bool {
        self.releases.is_bundle_named()
    }

    /// The plan of `resource` of `file`, whose anchor has the uid `anchor`, and warnings.
    pub async fn plan(&self, file: &str, resource: &Knative, anchor: &str) -> Result<(Plan, Vec<String>), String> {
        self.releases.plan(resource, anchor).await.map_err(|why| format!("{file}: {why}"))
    }

    /// The objects of `resource`, and its release.
    pub async fn render(&self, resource: &Knative) -> Result<(Rendered, Release), InputError> {
        self.releases.render(resource).await
    }
}
