//! Flags of the operator itself.

use std::path::PathBuf;
use std::time::Duration;

use knative_operator_runtime::admin::AdminArgs;
use knative_operator_runtime::duration::{duration, duration_or_zero};
use knative_operator_runtime::hub::HubArgs;
use knative_operator_runtime::log::LogArgs;

use super::access_args::AccessArgs;
use super::release_args::ReleaseArgs;

/// Maximum number of shards.
pub const MAX_SHARDS: u32 = 256;

/// The poll interval if the flag is missing or below 1 s.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Flags of the operator itself.
#[allow(clippy::struct_excessive_bools)] // Each is a flag.
#[derive(Clone, Debug, clap::Args)]
pub struct RunArgs {
    /// Log settings.
    #[command(flatten)]
    pub log: LogArgs,
    /// Connection to the hub.
    #[command(flatten)]
    pub hub: HubArgs,
    /// Path of the access provider configuration (KEP-5339). Without it, multi-cluster support is
    /// disabled.
    #[arg(long, value_name = "PATH")]
    pub clusterprofile_provider_file: Option<PathBuf>,
    /// What is allowed on the way to spokes.
    #[command(flatten)]
    pub access: AccessArgs,
    /// Interval of checks on spokes that allow no watch, such as 10s or 1m30s. The operator
    /// replaces values below 1s with the default.
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration_or_zero, allow_hyphen_values = true)]
    pub remote_deployments_poll_interval: Duration,
    /// Source of releases.
    #[command(flatten)]
    pub releases: ReleaseArgs,
    /// Time limit of a credential plugin.
    #[arg(long, default_value = "10s", value_name = "DURATION", value_parser = duration)]
    pub exec_timeout: Duration,
    /// Maximum number of custom resources that are reconciled at the same time. Reconciles that
    /// wait for an unreachable spoke don't count.
    #[arg(long, default_value_t = 32, value_name = "NUMBER", value_parser = clap::value_parser!(u16).range(1..))]
    pub max_concurrent_reconciles: u16,
    /// Number of shards that the replicas share. One replica handles all clusters of a shard. With
    /// 1, one replica does all the work and the others are on standby. Must be the same for all
    /// replicas.
    #[arg(long, env = "SHARDS", default_value_t = 1, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=i64::from(MAX_SHARDS)))]
    pub shards: u32,
    /// Manages KnativeFleets. Needs multi-cluster support.
    #[arg(long, env = "ENABLE_FLEETS")]
    pub enable_fleets: bool,
    /// Name of this cluster, for people on other clusters: messages about installations that belong
    /// to it show the name.
    #[arg(long, env = "HUB_NAME", value_name = "NAME")]
    pub hub_name: Option<String>,
    /// Refuses to install into a namespace of a spoke that existed before and has RoleBindings,
    /// workloads or admission webhooks of others, which may read what is installed there.
    #[arg(long, env = "REFUSE_USED_NAMESPACES")]
    pub refuse_used_namespaces: bool,
    /// Keeps the installed version of Knative while it is one that spec.version means: an operator
    /// with a newer release bundle upgrades nothing by itself.
    #[arg(long)]
    pub keep_installed_versions: bool,
    /// Installs on this cluster itself, too. With false, the operator ignores resources without a
    /// ClusterProfile, and needs few permissions on this cluster.
    #[arg(long, default_value_t = true, action = clap::ArgAction::Set, value_name = "BOOL")]
    pub local_installation: bool,
    /// Asks whether the author of a resource may use its cluster, when the resource begins to
    /// install. For a webhook with --authorization=enforce; each webhook records the author.
    #[arg(long)]
    pub enforce_authorization: bool,
    /// Health and metrics.
    #[command(flatten)]
    pub admin: AdminArgs,
    /// Serves /debug beside /metrics, to the same users: what the operator does, as JSON. Needs
    /// --secure-metrics.
    #[arg(long, env = "ENABLE_DEBUG")]
    pub enable_debug: bool,
    /// Secret in the operator's namespace with the certificate for secure metrics (tls.crt and
    /// tls.key).
    #[arg(long, default_value = "operator-webhook-certs", value_name = "NAME")]
    pub metrics_certificate_secret: String,
    /// Namespace of the Leases.
    #[arg(long, env = "SYSTEM_NAMESPACE", default_value = "knative-operator")]
    pub namespace: String,
    /// Name of this replica, unique among the replicas.
    #[arg(long, env = "POD_NAME")]
    pub pod_name: Option<String>,
}

impl RunArgs {
    /// The effective poll interval.
    pub fn poll_interval(&self) -> Duration {
        if self.remote_deployments_poll_interval < Duration::from_secs(1) {
            POLL_INTERVAL
        } else {
            self.remote_deployments_poll_interval
        }
    }
}
