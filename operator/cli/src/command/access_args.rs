//! Flags of `run` and `preflight`: what is allowed on the way to spokes.

use knative_operator_release::{AllowedHost, HostPolicy};
use knative_operator_shared::syntax;

/// What is allowed on the way to spokes. The chart sets the environment, so that `preflight` in the
/// operator's Pod allows no more than the operator.
#[derive(Clone, Debug, clap::Args)]
pub struct AccessArgs {
    /// Namespaces whose ClusterProfiles may be used, separated by commas. By default, those of all
    /// namespaces.
    #[arg(long, env = "PROFILE_NAMESPACES", value_name = "NAMESPACE", value_delimiter = ',', value_parser = namespace_name)]
    pub profile_namespaces: Vec<String>,
    /// Refuses Secrets with credentials that name no ClusterProfile in the annotation
    /// operator.knative.dev/cluster-profile. By default, a warning reports them.
    #[arg(long, env = "REQUIRE_BOUND_SECRETS")]
    pub require_bound_secrets: bool,
    /// Allows ClusterProfiles to have http servers, which get their credentials unencrypted:
    /// everybody on the way can read them. By default, they are refused.
    #[arg(long, env = "ALLOW_HTTP_SERVERS")]
    pub allow_http_servers: bool,
    /// Hosts and networks that manifests may be downloaded from although their addresses are not
    /// public, such as mirror.example.com or 10.0.0.0/8.
    #[arg(long, env = "ALLOWED_MANIFEST_HOSTS", value_name = "HOST", value_delimiter = ',')]
    pub allowed_manifest_hosts: Vec<AllowedHost>,
}

impl AccessArgs {
    /// From where manifests of stored resources may be downloaded.
    pub fn host_policy(&self) -> HostPolicy {
        HostPolicy::public_and(&self.allowed_manifest_hosts)
    }
}

/// Parses the name of a namespace.
fn namespace_name(text: &str) -> Result<String, String> {
    syntax::label(text).map_or_else(|| Ok(text.to_owned()), |why| Err(why.to_owned()))
}
