//! The provider file (KEP-5339, `sigs.k8s.io/cluster-inventory-api/pkg/access`): it maps types of
//! access providers to credential plugins.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;

use serde::Deserialize;

/// Name of the extension of a ClusterProfile with the configuration of a provider, such as the name
/// of a Secret.
pub const EXEC_EXTENSION: &str = "client.authentication.k8s.io/exec";

/// The provider file.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct Providers {
    /// Providers in order of preference.
    pub providers: Vec<Provider>,
}

/// One provider.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Provider {
    /// Type of access provider.
    pub name: String,
    /// The plugin.
    #[serde(default)]
    pub exec_config: Option<ExecConfig>,
    /// A built-in provider instead of a plugin.
    #[serde(default)]
    pub builtin: Option<Builtin>,
    /// The Secret that it reads, in place of the one that the ClusterProfile names: `{name}` and
    /// `{namespace}` stand for those of the ClusterProfile.
    #[serde(default)]
    pub secret_name: Option<String>,
    /// The namespace of the Secret, with the same placeholders. By default, that of the program.
    #[serde(default)]
    pub namespace: Option<String>,
    /// The key in the Secret, with the same placeholders.
    #[serde(default)]
    pub key: Option<String>,
    /// Policy for additional arguments of a profile.
    #[serde(rename = "profileSourcedCLIArgsPolicy", default)]
    pub args_policy: ArgsPolicy,
    /// Policy for additional environment variables of a profile.
    #[serde(rename = "profileSourcedEnvVarsPolicy", default)]
    pub env_policy: EnvPolicy,
}

/// A provider that is built in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Builtin {
    /// Reads a token from a Secret.
    SecretReader,
    /// Reads a token or a client certificate from a kubeconfig in a Secret.
    #[serde(rename = "kubeconfig-secretreader")]
    KubeconfigSecretReader,
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
    /// Its environment, besides that of the program.
    pub env: Option<Vec<EnvVar>>,
    /// Whether the plugin gets the cluster in `KUBERNETES_EXEC_INFO`.
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

/// Policy for additional arguments of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum ArgsPolicy {
    /// Ignore them.
    #[default]
    #[serde(alias = "")]
    Ignore,
    /// Append them to those of the file.
    Append,
}

/// Policy for additional environment variables of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub enum EnvPolicy {
    /// Ignore them.
    #[default]
    #[serde(alias = "")]
    Ignore,
    /// Add those that the file lacks.
    AppendIfNotExists,
    /// Add them, and replace those of the file.
    Replace,
}

/// Why the provider file can't be used.
#[derive(Debug, thiserror::Error)]
pub enum ProviderFileError {
    /// The file can't be read.
    #[error("--clusterprofile-provider-file: cannot read {path}: {source}")]
    Read {
        /// Its path.
        path: PathBuf,
        /// Its error.
        source: std::io::Error,
    },
    /// The file is not JSON, or has another structure.
    #[error(
        "--clusterprofile-provider-file: {path} is not a provider file: {source}; it must be JSON such as {{\"providers\":[{{\"name\":\"…\",\"execConfig\":{{…}}}}]}}"
    )]
    Parse {
        /// Its path.
        path: PathBuf,
        /// The error with its position.
        source: serde_json::Error,
    },
}

/// Interval of checks for changes of the file.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The last valid contents of the provider file.
pub struct ProviderFile {
    path: PathBuf,
    current: ArcSwap<Providers>,
}

impl ProviderFile {
    /// Reads the file at `path`.
    pub fn read(path: &Path) -> Result<Self, ProviderFileError> {
        Ok(Self { path: path.to_owned(), current: ArcSwap::from_pointee(Providers::read(path)?) })
    }

    /// The current contents.
    pub fn current(&self) -> Arc<Providers> {
        self.current.load_full()
    }

    /// Waits until the contents change. Calls `valid` whenever the file becomes valid or invalid;
    /// an invalid file changes nothing.
    pub async fn changed(&self, valid: impl Fn(bool)) {
        let mut invalid = false;
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            match Providers::read(&self.path) {
                Ok(read) => {
                    valid(true);
                    invalid = false;
                    if read != **self.current.load() {
                        let names: Vec<_> = read.providers.iter().map(|p| p.name.as_str()).collect();
                        tracing::info!(path = %self.path.display(), providers = names.join(", "), "read the changed provider file");
                        self.current.store(Arc::new(read));
                        return;
                    }
                }
                Err(error) if !invalid => {
                    tracing::error!(
                        error = knative_operator_client::error_text(&error),
                        "the provider file is invalid; its last valid contents stay in use"
                    );
                    valid(false);
                    invalid = true;
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
