//! Client of a user: their kubeconfig, as kubectl uses it.

use std::env::var_os;
use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Arg, Args};
use http::HeaderValue;
use http::header::USER_AGENT;
use kube::client::ClientBuilder;
use kube::config::{KubeConfigOptions, Kubeconfig, KubeconfigError, NamedCluster};
use kube::{Client, Config};
use tower::timeout::TimeoutLayer;
use tower::util::{MapErrLayer, option_layer};

use crate::connect_error::{self, OF_POD, explained, unusable};
use crate::duration::seconds_or_duration;
use crate::identity::user_agent;

/// Time limit of a connection attempt, less than that of a command's first list.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Variable with the paths of kubeconfigs.
const KUBECONFIG: &str = "KUBECONFIG";
/// Heading of the flags in the help.
const HEADING: &str = "Cluster options";

/// Flags of the connection of a user, as kubectl has them. Their identifiers differ from those of a
/// program, which may have the same flags.
#[derive(Args, Clone, Debug)]
pub struct UserArgs {
    /// Path of a kubeconfig. Defaults to that of kubectl.
    #[arg(id = "user-kubeconfig", long = "kubeconfig", global = true, value_name = "PATH", help_heading = HEADING)]
    kubeconfig: Option<PathBuf>,
    /// Context in the kubeconfig. Defaults to the current one.
    #[arg(id = "user-context", long = "context", global = true, value_name = "NAME", help_heading = HEADING,
        value_parser = NonEmptyStringValueParser::new())]
    context: Option<String>,
    /// Namespace. Defaults to that of the context.
    #[arg(id = "user-namespace", short = 'n', long = "namespace", global = true, value_name = "NAME",
        help_heading = HEADING, value_parser = NonEmptyStringValueParser::new())]
    namespace: Option<String>,
    /// User to act as. You need the permission to impersonate.
    #[arg(id = "user-as", long = "as", global = true, value_name = "USER", help_heading = HEADING,
        value_parser = NonEmptyStringValueParser::new())]
    user: Option<String>,
    /// Group to act as, with --as. You can repeat it.
    #[arg(id = "user-as-group", long = "as-group", global = true, value_name = "GROUP",
        help_heading = HEADING, value_parser = NonEmptyStringValueParser::new())]
    groups: Vec<String>,
    /// Time limit of a response of the API server, such as 30s. Watches go on. By default, and with
    /// 0, there is none.
    #[arg(id = "user-request-timeout", long = "request-timeout", global = true, value_name = "DURATION",
        help_heading = HEADING, value_parser = seconds_or_duration)]
    request_timeout: Option<Duration>,
}

/// The flag --namespace of a command that is about the whole hub.
pub fn namespace_of_hub(flag: Arg) -> Arg {
    flag.help("Namespace. Defaults to all")
}

/// The namespaces that a command lists.
#[derive(Args, Clone, Copy, Debug)]
pub struct Namespaces {
    /// All namespaces, regardless of --namespace.
    #[arg(short = 'A', long, help_heading = HEADING)]
    all_namespaces: bool,
}

impl Namespaces {
    /// `namespace`, or `None` for all.
    pub fn only(self, namespace: &str) -> Option<&str> {
        (!self.all_namespaces).then_some(namespace)
    }
}

/// Why there is no connection. Its text has no credentials.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserError {
    /// A kubeconfig, the ServiceAccount of the Pod, or the settings in it can't be used. It is text
    /// from the beginning: errors of libraries show the lines around a mistake.
    #[error("{0}")]
    Unusable(String),
    /// The kubeconfig lacks the context, for this reason.
    #[error("cannot use the kubeconfig {path}: {why}")]
    WithoutContext {
        /// Its path, or the paths.
        path: String,
        /// Which context it lacks, and which it has.
        why: String,
    },
    /// A group without a user.
    #[error("--as-group needs --as, a user of the group")]
    GroupWithoutUser,
}

/// A connection of a user.
pub struct Connection {
    /// Client of the API server.
    pub client: Client,
    /// The namespace that the user named, or else that of the context.
    pub namespace: String,
    /// URL of the API server and where it is from, for messages. It has no credentials.
    pub server: String,
}

impl UserArgs {
    /// Connects `program`. In a Pod without a kubeconfig, it uses the Pod's ServiceAccount.
    ///
    /// # Errors
    ///
    /// If the kubeconfig or a flag is invalid.
    pub async fn connect(&self, program: &str) -> Result<Connection, UserError> {
        let mut connection = match self.read() {
            Err(error) if is_missing(&error) && self.is_of_pod() => {
                let config = Config::incluster();
                let config = config.map_err(|error| unusable_settings("the ServiceAccount of the Pod", &error))?;
                self.connect_with(config, OF_POD.0, OF_POD.1, program)?
            }
            kubeconfig => {
                let kubeconfig = kubeconfig.map_err(|error| self.unusable(&error))?;
                self.connect_by(kubeconfig, self.context.clone(), program).await?
            }
        };
        connection.namespace = self.namespace.clone().unwrap_or(connection.namespace);
        Ok(connection)
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
    pub async fn client_of_server(&self, program: &str, server: &str) -> Result<Option<Client>, UserError> {
        let kubeconfig = self.kubeconfig()?;
        let has_server = |name: &str| {
            let url = |cluster: &NamedCluster| cluster.cluster.as_ref().and_then(|cluster| cluster.server.clone());
            let found = kubeconfig.clusters.iter().find(|cluster| cluster.name == name).and_then(url);
            found.is_some_and(|url| url.trim_end_matches('/') == server.trim_end_matches('/'))
        };
        let found =
            kubeconfig.contexts.iter().find(|named| named.context.as_ref().is_some_and(|c| has_server(&c.cluster)));
        let Some(context) = found.map(|named| named.name.clone()) else { return Ok(None) };
        self.connect_by(kubeconfig, Some(context), program).await.map(|connection| Some(connection.client))
    }

    /// Names of the contexts of the user.
    ///
    /// # Errors
    ///
    /// If the kubeconfig is invalid.
    pub fn contexts(&self) -> Result<Vec<String>, UserError> {
        Ok(self.kubeconfig()?.contexts.into_iter().map(|context| context.name).collect())
    }

    fn kubeconfig(&self) -> Result<Kubeconfig, UserError> {
        self.read().map_err(|error| self.unusable(&error))
    }

    fn unusable(&self, error: &KubeconfigError) -> UserError {
        unusable_settings(&format!("the kubeconfig {}", self.path()), error)
    }

    /// The path of the kubeconfig, or the paths.
    fn path(&self) -> String {
        let path = self.kubeconfig.clone().map(PathBuf::into_os_string);
        let path = path.or_else(|| var_os(KUBECONFIG)).filter(|path| !path.is_empty());
        path.map_or_else(|| "~/.kube/config".to_owned(), |path| path.to_string_lossy().into_owned())
    }

    fn read(&self) -> Result<Kubeconfig, KubeconfigError> {
        match &self.kubeconfig {
            Some(path) => Kubeconfig::read_from(path),
            None => Kubeconfig::read(),
        }
    }

    /// Whether there is a cluster: one that the user named, that of the kubeconfig, or that of the
    /// Pod. It may be unreachable.
    pub fn has_cluster(&self) -> bool {
        self.is_chosen() || self.is_of_pod() || !self.read().is_err_and(|error| is_missing(&error))
    }

    /// Whether the user chose a kubeconfig or a context.
    fn is_chosen(&self) -> bool {
        self.kubeconfig.is_some() || self.context.is_some() || is_set(KUBECONFIG)
    }

    /// Whether the command runs in a Pod, and the user chose no kubeconfig.
    fn is_of_pod(&self) -> bool {
        !self.is_chosen() && is_set("KUBERNETES_SERVICE_HOST")
    }

    /// Connects `program` by `context` of `kubeconfig`, or by the current one.
    async fn connect_by(
        &self,
        kubeconfig: Kubeconfig,
        context: Option<String>,
        program: &str,
    ) -> Result<Connection, UserError> {
        let name = context.clone().or_else(|| kubeconfig.current_context.clone()).unwrap_or_default();
        let path = self.path();
        if let Some(why) = without_context(&kubeconfig, &name) {
            return Err(UserError::WithoutContext { path, why });
        }
        let options = KubeConfigOptions { context, ..KubeConfigOptions::default() };
        let config = Config::from_custom_kubeconfig(kubeconfig, &options).await;
        let config = config.map_err(|error| self.unusable(&error))?;
        let check = "if it is the wrong context: kubectl config get-contexts lists them";
        self.connect_with(config, &format!("context {name}, {path}"), check, program)
    }

    /// Connects `program` with `config` and the flags.
    fn connect_with(
        &self,
        mut config: Config,
        origin: &str,
        check: &'static str,
        program: &str,
    ) -> Result<Connection, UserError> {
        self.impersonate(&mut config)?;
        connect(config, origin, check, program, self.request_timeout)
    }

    /// Lets `config` act as the user of the flags, and as nothing of another one that the
    /// kubeconfig names.
    fn impersonate(&self, config: &mut Config) -> Result<(), UserError> {
        let Some(user) = &self.user else {
            return if self.groups.is_empty() { Ok(()) } else { Err(UserError::GroupWithoutUser) };
        };
        config.auth_info.impersonate = Some(user.clone());
        config.auth_info.impersonate_groups = Some(self.groups.clone());
        config.auth_info.impersonate_uid = None;
        config.auth_info.impersonate_user_extra = None;
        Ok(())
    }
}

/// Whether the environment has a value of `variable`.
fn is_set(variable: &str) -> bool {
    var_os(variable).is_some_and(|value| !value.is_empty())
}

/// `what`, which has the settings of a connection, can't be used.
fn unusable_settings(what: &str, error: &(dyn std::error::Error + 'static)) -> UserError {
    UserError::Unusable(unusable(what, error))
}

/// Whether there is no kubeconfig. One that can't be read is no reason to use another cluster.
fn is_missing(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::ReadConfig(error, _) => error.kind() == std::io::ErrorKind::NotFound,
        KubeconfigError::FindPath => true,
        _ => false,
    }
}

/// Why `kubeconfig` can't be used, if it lacks the context `name`, which is empty if none is
/// chosen.
fn without_context(kubeconfig: &Kubeconfig, name: &str) -> Option<String> {
    let names: Vec<_> = kubeconfig.contexts.iter().map(|context| context.name.as_str()).collect();
    if names.contains(&name) {
        return None;
    }
    let lacking = if name.is_empty() { "a current context".to_owned() } else { format!("a context {name}") };
    let others = if names.is_empty() { "it has none".to_owned() } else { format!("it has {}", names.join(", ")) };
    Some(format!("it lacks {lacking}; name one with --context: {others}"))
}

/// Connects `program` with `config` and a `limit` of the time to a response. If the API server
/// can't be reached, the error names the server and its `origin`, and what to `check`.
fn connect(
    mut config: Config,
    origin: &str,
    check: &'static str,
    program: &str,
    limit: Option<Duration>,
) -> Result<Connection, UserError> {
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    // Name and version of the program are ASCII.
    config.headers.extend(HeaderValue::from_str(&user_agent(program)).ok().map(|agent| (USER_AGENT, agent)));
    let namespace = config.default_namespace.clone();
    let server = connect_error::server(&config.cluster_url, origin);
    let builder = ClientBuilder::try_from(config);
    let builder =
        builder.map_err(|error: kube::Error| unusable_settings(&format!("the settings for {server}"), &error))?;
    let builder = builder.with_layer(&option_layer(limit.filter(|limit| !limit.is_zero()).map(TimeoutLayer::new)));
    let explain = MapErrLayer::new(explained(server.clone(), check));
    Ok(Connection { client: builder.with_layer(&explain).build(), namespace, server })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error_text;

    #[tokio::test]
    async fn unreachable_server_is_named_with_its_context_and_without_credentials() {
        crate::install_crypto();
        let config = Config::new("http://user:hunter2@127.0.0.1:1/prefix/".parse().unwrap());
        let connection = connect(config, "context prod, a.yaml", "check it", "x", None).unwrap();
        assert_eq!(connection.server, "http://127.0.0.1:1/prefix (context prod, a.yaml)");
        let error = connection.client.apiserver_version().await.unwrap_err();
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
        let error = connect(config, "a.yaml", "", "x", None).map(drop).unwrap_err().to_string();
        let start = "cannot use the settings for https://127.0.0.1:1 (a.yaml): ";
        assert!(error.starts_with(start) && !error.contains("hunter2"), "{error}");
    }

    #[test]
    fn lacking_context_is_reported_with_those_that_are_there() {
        let kubeconfig: Kubeconfig = serde_json::from_value(serde_json::json!({"contexts": [
            {"name": "prod", "context": {"cluster": "c"}}, {"name": "test", "context": {"cluster": "c"}}]}))
        .unwrap();
        assert_eq!(without_context(&kubeconfig, "prod"), None);
        let expected = "it lacks a context prd; name one with --context: it has prod, test";
        assert_eq!(without_context(&kubeconfig, "prd").as_deref(), Some(expected));
        let expected = "it lacks a current context; name one with --context: it has none";
        assert_eq!(without_context(&Kubeconfig::default(), "").as_deref(), Some(expected));
    }

    #[derive(clap::Parser)]
    struct Line {
        #[command(flatten)]
        user: UserArgs,
    }

    /// The impersonation with the flags `line`, for a kubeconfig that impersonates, too.
    fn impersonated(line: &[&str]) -> Result<(Option<String>, Option<Vec<String>>), UserError> {
        let Line { user } = clap::Parser::try_parse_from([&["x"], line].concat()).unwrap();
        let mut config = Config::new("https://127.0.0.1:1".parse().unwrap());
        config.auth_info.impersonate = Some("ann".to_owned());
        config.auth_info.impersonate_groups = Some(vec!["admins".to_owned()]);
        user.impersonate(&mut config)?;
        Ok((config.auth_info.impersonate, config.auth_info.impersonate_groups))
    }

    #[test]
    fn user_of_the_flags_replaces_the_one_of_the_kubeconfig() {
        let groups = |names: &[&str]| Some(names.iter().map(ToString::to_string).collect::<Vec<_>>());
        assert_eq!(impersonated(&[]), Ok((Some("ann".to_owned()), groups(&["admins"]))));
        assert_eq!(impersonated(&["--as", "jane"]), Ok((Some("jane".to_owned()), groups(&[]))));
        let line = ["--as=jane", "--as-group=a", "--as-group=b"];
        assert_eq!(impersonated(&line), Ok((Some("jane".to_owned()), groups(&["a", "b"]))));
        assert_eq!(impersonated(&["--as-group=a"]), Err(UserError::GroupWithoutUser));
    }

    #[tokio::test]
    async fn server_without_response_is_named() {
        crate::install_crypto();
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        // Connections are accepted by the kernel, and nobody reads.
        let (config, limit) = (Config::new(url.parse().unwrap()), Some(Duration::from_millis(50)));
        let connection = connect(config, "context prod, a.yaml", "check it", "x", limit).unwrap();
        let error = connection.client.apiserver_version().await.unwrap_err();
        let expected = format!("cannot reach the API server {url} (context prod, a.yaml): request timed out; check it");
        assert_eq!(error_text(&error), expected);
    }
}
