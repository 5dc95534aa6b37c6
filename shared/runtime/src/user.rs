//! Client of a user: their kubeconfig, as kubectl uses it.

use std::env::var_os;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http::header::USER_AGENT;
use http::uri::Authority;
use http::{HeaderValue, Uri};
use hyper_util::client::legacy;
use knative_operator_shared::redact::redact;
use kube::client::{AuthError, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError, NamedCluster};
use kube::{Client, Config};
use tower::BoxError;
use tower::util::MapErrLayer;

use crate::error_text::{Unreachable, error_text};
use crate::identity::user_agent;

/// Time limit of a connection attempt, less than that of a command's first list.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Variable with the paths of kubeconfigs.
const KUBECONFIG: &str = "KUBECONFIG";

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
    /// A client for `program`, and the namespace. In a Pod without a kubeconfig, it uses the Pod's
    /// ServiceAccount.
    ///
    /// # Errors
    ///
    /// If the kubeconfig is invalid.
    pub async fn client(&self, program: &str) -> Result<(Client, String), String> {
        let (client, namespace) = match self.read() {
            Err(error) if is_missing(&error) && self.is_of_pod() => {
                let config = Config::incluster();
                let config = config
                    .map_err(|error| format!("cannot use the ServiceAccount of the Pod: {}", error_text(&error)))?;
                connect(config, "the cluster of this Pod", "check the network of the Pod", program)?
            }
            kubeconfig => {
                self.client_of(kubeconfig.map_err(|error| failed(&error))?, self.context.clone(), program).await?
            }
        };
        Ok((client, self.namespace.clone().unwrap_or(namespace)))
    }

    /// The namespace that the user named.
    pub fn namespace(&self) -> Option<&str> {
        self.namespace.as_deref()
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
        self.client_of(kubeconfig, Some(context), program).await.map(|(client, _)| Some(client))
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
        self.read().map_err(|error| failed(&error))
    }

    fn read(&self) -> Result<Kubeconfig, KubeconfigError> {
        match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        }
    }

    /// Whether the command runs in a Pod, and the user chose no kubeconfig.
    fn is_of_pod(&self) -> bool {
        let is_set = |variable: &str| var_os(variable).is_some_and(|value| !value.is_empty());
        let is_chosen = self.kubeconfig.is_some() || self.context.is_some() || is_set(KUBECONFIG);
        !is_chosen && is_set("KUBERNETES_SERVICE_HOST")
    }

    /// A client for `program` by `context` of `kubeconfig`, or by the current one; and the
    /// namespace.
    async fn client_of(
        &self,
        kubeconfig: Kubeconfig,
        context: Option<String>,
        program: &str,
    ) -> Result<(Client, String), String> {
        let name = context.clone().or_else(|| kubeconfig.current_context.clone()).unwrap_or_default();
        let path = self.kubeconfig.clone().map(PathBuf::into_os_string);
        let path = path.or_else(|| var_os(KUBECONFIG)).filter(|path| !path.is_empty());
        let path = path.map_or_else(|| "~/.kube/config".to_owned(), |path| path.to_string_lossy().into_owned());
        let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await.map_err(|error| failed(&error))?;
        let check = "if it is the wrong context: kubectl config get-contexts lists them";
        connect(config, &format!("context {name}, {path}"), check, program)
    }
}

/// Whether there is no kubeconfig. One that can't be read is no reason to use another cluster.
fn is_missing(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::ReadConfig(error, _) => error.kind() == std::io::ErrorKind::NotFound,
        KubeconfigError::FindPath => true,
        _ => false,
    }
}

/// What is reported about a credential plugin that failed: the error shows its environment and all
/// that it printed.
fn of_plugin(error: &(dyn std::error::Error + 'static)) -> Option<String> {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.filter_map(|error| error.downcast_ref()).find_map(|error| match error {
        AuthError::AuthExecRun { out, .. } => {
            Some(format!("the credential plugin of the kubeconfig failed with {}; run it to see why", out.status))
        }
        _ => None,
    })
}

/// The error without credentials, such as those of a proxy.
fn failed(error: &(dyn std::error::Error + 'static)) -> String {
    if let Some(text) = of_plugin(error) {
        return text;
    }
    format!("cannot use the kubeconfig: {}", redact(&error_text(error)))
}

/// A client for `program` with `config`, and its namespace. If the API server can't be reached, the
/// error names the server and its `origin`, and what to `check`.
fn connect(mut config: Config, origin: &str, check: &'static str, program: &str) -> Result<(Client, String), String> {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Name and version of the program are ASCII.
    config.headers.extend(HeaderValue::from_str(&user_agent(program)).ok().map(|agent| (USER_AGENT, agent)));
    let namespace = config.default_namespace.clone();
    let server = format!("{} ({origin})", without_user(&config.cluster_url));
    let explain = move |error: BoxError| -> BoxError {
        if let Some(text) = of_plugin(&*error) {
            return text.into();
        }
        if !error.is::<legacy::Error>() {
            return error;
        }
        let cause = redact(&error_text(&*error)).replace("deadline has elapsed", "timed out");
        Box::new(Unreachable { server, cause, check })
    };
    let builder = ClientBuilder::try_from(config).map_err(|error: kube::Error| failed(&error))?;
    Ok((builder.with_layer(&MapErrLayer::new(explain)).build(), namespace))
}

/// `url` without the user, the password and the query.
fn without_user(url: &Uri) -> String {
    let authority = url.authority().map_or("", Authority::as_str);
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{}://{host}{}", url.scheme_str().unwrap_or("https"), url.path().trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn unreachable_server_is_named_with_its_context_and_without_credentials() {
        crate::install_crypto();
        let config = Config::new("http://user:hunter2@127.0.0.1:1/prefix/".parse().unwrap());
        let (client, _) = connect(config, "context prod, a.yaml", "check it", "x").unwrap();
        let error = client.apiserver_version().await.unwrap_err();
        let expected = "cannot reach the API server http://127.0.0.1:1/prefix (context prod, a.yaml): \
                        Connection refused; check it";
        assert_eq!(error_text(&error), expected);
        let listed = kube::runtime::watcher::Error::InitialListFailed(error);
        assert_eq!(error_text(&listed), expected);
    }

    #[test]
    fn password_of_a_proxy_is_not_shown() {
        crate::install_crypto();
        let mut config = Config::new("https://127.0.0.1:1".parse().unwrap());
        config.proxy_url = Some("http://user:hunter2@127.0.0.1:2".parse().unwrap());
        let error = connect(config, "", "", "x").map(drop).unwrap_err();
        assert!(error.starts_with("cannot use the kubeconfig: ") && !error.contains("hunter2"), "{error}");
    }
}
