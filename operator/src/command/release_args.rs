//! Flags that name the source of releases.

use std::path::PathBuf;
use std::time::Duration;

use knative_operator_runtime::duration::duration;

use crate::release::{Bundle, Downloads, DownloadsError, HostPolicy, Library};
use crate::render::Settings;

/// Source of releases, and render settings.
#[derive(Clone, Debug, clap::Args)]
pub struct ReleaseArgs {
    /// Path of the release bundle.
    #[arg(long, env = "KO_DATA_PATH", default_value = "/var/run/ko", value_name = "PATH")]
    pub releases: PathBuf,
    /// Time limit for the download of a manifest from a URL in a spec.
    #[arg(long, default_value = "30s", value_name = "DURATION", value_parser = duration)]
    pub download_timeout: Duration,
    /// Minimum Kubernetes version that Knative's components accept, such as v1.34.0. Defaults to
    /// their own minimum.
    #[arg(long, env = "KUBERNETES_MIN_VERSION", value_name = "VERSION")]
    pub kubernetes_min_version: Option<String>,
}

impl ReleaseArgs {
    /// Reads releases from the bundle and from URLs of `hosts`.
    pub fn library(&self, hosts: HostPolicy) -> Result<Library, DownloadsError> {
        let downloads = Downloads::new(self.download_timeout, hosts)?;
        Ok(Library { bundle: Bundle::open(self.releases.clone()), downloads })
    }

    /// Settings of rendering.
    pub fn settings(&self) -> Settings {
        Settings { kubernetes_min_version: self.kubernetes_min_version.clone().filter(|v| !v.is_empty()) }
    }
}
