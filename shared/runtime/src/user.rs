//! Client of a user: their kubeconfig, as kubectl uses it.

use std::path::PathBuf;

use clap::Args;
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::error_text;
use crate::identity::user_agent;

/// Flags of the connection of a user. Their identifiers differ from those of a program, which may
/// have the same flags.
#[derive(Args, Clone, Debug)]
pub struct UserArgs {
    /// Path of a kubeconfig. Defaults to that of kubectl.
    #[arg(id = "user-kubeconfig", long = "kubeconfig", global = true, value_name = "PATH")]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig. Defaults to the current one.
    #[arg(id = "user-context", long = "context", global = true, value_name = "NAME")]
    context: Option<String>,
    /// Namespace. Defaults to that of the context.
    #[arg(id = "user-namespace", short = 'n', long = "namespace", global = true, value_name = "NAME")]
    namespace: Option<String>,
}

impl UserArgs {
    /// A client for `program`, and the namespace.
    ///
    /// # Errors
    ///
    /// If the kubeconfig is invalid.
    pub async fn client(&self, program: &str) -> Result<(Client, String), String> {
        let failed =
            |error: &(dyn std::error::Error + 'static)| format!("cannot use the kubeconfig: {}", error_text(error));
        let kubeconfig = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        let kubeconfig = kubeconfig.map_err(|error| failed(&error))?;
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let mut config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| failed(&error))?;
        // Name and version of the program are ASCII.
        config.headers.extend(HeaderValue::from_str(&user_agent(program)).ok().map(|agent| (USER_AGENT, agent)));
        let namespace = self.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        let client = Client::try_from(config).map_err(|error| failed(&error))?;
        Ok((client, namespace))
    }
}
