//! Client of a user: their kubeconfig, as kubectl uses it.

use std::path::PathBuf;

use clap::Args;
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{KubeConfigOptions, Kubeconfig, NamedCluster};
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
        let options = KubeConfigOptions { context: self.context.clone(), ..KubeConfigOptions::default() };
        let (client, namespace) = connect(self.kubeconfig()?, &options, program).await?;
        Ok((client, self.namespace.clone().unwrap_or(namespace)))
    }

    /// Whether the user named a namespace.
    pub fn has_namespace(&self) -> bool {
        self.namespace.is_some()
    }

    /// A client for `program` by the first context whose cluster has the URL `server`; `None` if
    /// there is none.
    ///
    /// # Errors
    ///
    /// If the kubeconfig is invalid.
    pub async fn client_of_server(&self, program: &str, server: &str) -> Result<Option<Client>, String> {
        let kubeconfig = self.kubeconfig()?;
        let has_server = |name: &str| {
            let url = |cluster: &NamedCluster| cluster.cluster.as_ref().and_then(|cluster| cluster.server.clone());
            let found = kubeconfig.clusters.iter().find(|cluster| cluster.name == name).and_then(url);
            found.is_some_and(|url| url.trim_end_matches('/') == server.trim_end_matches('/'))
        };
        let found =
            kubeconfig.contexts.iter().find(|named| named.context.as_ref().is_some_and(|c| has_server(&c.cluster)));
        let Some(context) = found.map(|named| named.name.clone()) else { return Ok(None) };
        let options = KubeConfigOptions { context: Some(context), ..KubeConfigOptions::default() };
        connect(kubeconfig, &options, program).await.map(|(client, _)| Some(client))
    }

    /// Names of the contexts of the user.
    ///
    /// # Errors
    ///
    /// If the kubeconfig is invalid.
    pub fn contexts(&self) -> Result<Vec<String>, String> {
        Ok(self.kubeconfig()?.contexts.into_iter().map(|context| context.name).collect())
    }

    fn kubeconfig(&self) -> Result<Kubeconfig, String> {
        let kubeconfig = match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        };
        kubeconfig.map_err(|error| failed(&error))
    }
}

fn failed(error: &(dyn std::error::Error + 'static)) -> String {
    format!("cannot use the kubeconfig: {}", error_text(error))
}

/// A client for `program`, and the namespace of the context.
async fn connect(
    kubeconfig: Kubeconfig,
    options: &KubeConfigOptions,
    program: &str,
) -> Result<(Client, String), String> {
    let mut config = Config::from_custom_kubeconfig(kubeconfig, options).await.map_err(|error| failed(&error))?;
    // Name and version of the program are ASCII.
    config.headers.extend(HeaderValue::from_str(&user_agent(program)).ok().map(|agent| (USER_AGENT, agent)));
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).map_err(|error| failed(&error))?;
    Ok((client, namespace))
}
