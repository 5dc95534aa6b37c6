//! The provider file (KEP-5339, `sigs.k8s.io/cluster-inventory-api/pkg/access`): which plugin gives credentials for
//! which type of access provider.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use serde::Deserialize;

/// The provider file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Providers {
    /// In order of preference.
    pub providers: Vec<Provider>,
}

/// One provider.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Provider {
    /// The type of access provider it is for.
    pub name: String,
    /// The plugin.
    #[serde(default)]
    pub exec_config: Option<ExecConfig>,
    /// Instead of a plugin: a provider that is part of the operator.
    #[serde(default)]
    pub builtin: Option<Builtin>,
    /// What a profile's additional arguments do.
    #[serde(rename = "profileSourcedCLIArgsPolicy", default)]
    pub args_policy: ArgsPolicy,
    /// What a profile's additional environment does.
    #[serde(rename = "profileSourcedEnvVarsPolicy", default)]
    pub env_policy: EnvPolicy,
}

/// A provider that is part of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Builtin {
    /// A token out of a Secret beside the operator.
    SecretReader,
}

/// A credential plugin (`client.authentication.k8s.io`, kubeconfig's `exec`).
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ExecConfig {
    /// `client.authentication.k8s.io/v1` or `…/v1beta1`.
    pub api_version: String,
    /// The executable.
    pub command: String,
    /// Its arguments.
    pub args: Option<Vec<String>>,
    /// Its environment, besides the operator's own.
    pub env: Option<Vec<EnvVar>>,
    /// Whether it is told about the cluster.
    pub provide_cluster_info: bool,
}

/// An environment variable.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct EnvVar {
    /// Its name.
    pub name: String,
    /// Its value.
    #[serde(default)]
    pub value: String,
}

/// What a profile's additional arguments do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum ArgsPolicy {
    /// Nothing.
    #[default]
    #[serde(alias = "")]
    Ignore,
    /// They come after the file's own.
    Append,
}

/// What a profile's additional environment does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum EnvPolicy {
    /// Nothing.
    #[default]
    #[serde(alias = "")]
    Ignore,
    /// It is added; the file's own wins.
    AppendIfNotExists,
    /// It is added and wins.
    Replace,
}

/// Why the provider file is of no use.
#[derive(Debug, thiserror::Error)]
pub enum ProviderFileError {
    /// It can't be read.
    #[error("--clusterprofile-provider-file: {path} can't be read: {source}")]
    Read {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no JSON, or of another shape.
    #[error(
        "--clusterprofile-provider-file: {path} is no provider file: {source}; it must be JSON such as {{\"providers\":[{{\"name\":\"…\",\"execConfig\":{{…}}}}]}}"
    )]
    Parse {
        /// Its path.
        path: PathBuf,
        /// What is wrong, and where.
        source: serde_json::Error,
    },
}

/// How often it is looked whether the file has changed.
const LOOK: Duration = Duration::from_secs(1);

/// The provider file as it was when it could be read last.
pub struct ProviderFile {
    path: PathBuf,
    current: ArcSwap<Providers>,
}

impl ProviderFile {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Self, ProviderFileError> {
        Ok(Self { path: path.to_owned(), current: ArcSwap::from_pointee(Providers::read(path)?) })
    }

    /// What it says.
    pub fn current(&self) -> Arc<Providers> {
        self.current.load_full()
    }

    /// Waits until it says something else, and whenever it can be read or can't any more tells `valid`. A file that makes no sense changes
    /// nothing.
    pub async fn changed(&self, valid: impl Fn(bool)) {
        let mut broken = false;
        loop {
            tokio::time::sleep(LOOK).await;
            match Providers::read(&self.path) {
                Ok(read) => {
                    valid(true);
                    broken = false;
                    if read != **self.current.load() {
                        let names: Vec<_> = read.providers.iter().map(|p| p.name.as_str()).collect();
                        tracing::info!(path = %self.path.display(), providers = names.join(", "), "the provider file has changed");
                        self.current.store(Arc::new(read));
                        return;
                    }
                }
                Err(error) if !broken => {
                    tracing::error!(
                        error = knative_operator_runtime::words(&error),
                        "what the provider file said before stays in force"
                    );
                    valid(false);
                    broken = true;
                }
                Err(_) => {}
            }
        }
    }
}

impl Providers {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Self, ProviderFileError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ProviderFileError::Read { path: path.to_owned(), source })?;
        serde_json::from_str(&text).map_err(|source| ProviderFileError::Parse { path: path.to_owned(), source })
    }
}
