//! The operator process: builds the [`crate::controller`] context, waits for the Lease, and runs
//! until it receives a signal.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use knative_operator_certs::{CertificateResolver, follow_secret};
use knative_operator_runtime::admin::{AdminArgs, AdminError};
use knative_operator_runtime::duration::duration;
use knative_operator_runtime::fence::Fence;
use knative_operator_runtime::hub::{HubArgs, HubError, RESPONSE_TIMEOUT};
use knative_operator_runtime::log::LogArgs;
use knative_operator_runtime::ready::Readiness;
use knative_operator_runtime::{process, signal};
use knative_operator_shared::label::FIELD_MANAGER;
use tokio::sync::mpsc;

use super::access_args::AccessArgs;
use super::release_args::ReleaseArgs;
use crate::controller::author::Authors;
use crate::controller::concurrency::ReconcilePermits;
use crate::controller::context::Context;
use crate::controller::events::Events;
use crate::controller::hub_changes::HubChanges;
use crate::controller::registry::Registry;
use crate::controller::render_cache::RenderCache;
use crate::controller::supervisor;
use crate::leader::{self, ShardEvent};
use crate::metrics::Metrics;
use crate::startup::go_operator::GoOperator;
use crate::startup::{catalog, conversion, hub_identity, other_release, suspension};
use knative_operator_cluster_access::connections::Connections;
use knative_operator_cluster_access::credential::CredentialFetcher;
use knative_operator_cluster_access::profiles::ClusterProfiles;
use knative_operator_cluster_access::provider::{ProviderFile, ProviderFileError};
use knative_operator_cluster_access::secret::SecretReader;
use knative_operator_release::{Archive, DownloadsError};

/// Worker threads.
const THREADS: usize = 2;
/// Maximum number of shards.
const MAX_SHARDS: u32 = 256;
/// Name of the Lease.
const LEASE: &str = "knative-operator";

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
    #[arg(long, value_name = "DURATION", default_value = "10s", value_parser = duration)]
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
    #[command(flatten)]
    admin: AdminArgs,
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

/// Why the process ended.
#[derive(Debug, thiserror::Error)]
enum RunError {
    #[error(transparent)]
    Hub(#[from] HubError),
    #[error(transparent)]
    Providers(#[from] ProviderFileError),
    #[error(transparent)]
    Downloads(#[from] DownloadsError),
    #[error(transparent)]
    Admin(AdminError),
    #[error("cannot receive signals")]
    Signal(#[source] std::io::Error),
    #[error("lost the Lease")]
    LeaseLost,
    #[error(transparent)]
    OtherOperator(other_release::OtherOperator),
    #[error("the watches on the hub ended")]
    WatchesEnded,
}

/// Runs the operator.
pub fn run(args: RunArgs) -> ExitCode {
    let log = args.log.clone();
    process::run(FIELD_MANAGER, &log, THREADS, serve(args))
}

async fn serve(args: RunArgs) -> Result<(), RunError> {
    let poll_interval = args.poll_interval();
    let RunArgs {
        log: _,
        hub,
        clusterprofile_provider_file,
        access,
        remote_deployments_poll_interval: _,
        releases,
        exec_timeout,
        max_concurrent_reconciles,
        shards,
        enable_fleets,
        hub_name,
        refuse_used_namespaces,
        keep_installed_versions,
        local_installation,
        enforce_authorization,
        admin,
        metrics_certificate_secret,
        namespace,
        pod_name,
    } = args;
    // Fails at the start if the file is unusable, not when the first resource needs it.
    let providers = clusterprofile_provider_file.as_deref().map(ProviderFile::read).transpose()?;
    let mut library = releases.library(access.host_policy())?;
    let stop = signal::stop().map_err(RunError::Signal)?;
    let (client, fence) = (hub.client(FIELD_MANAGER).await?, Fence::default());
    let writer = hub.client_with(FIELD_MANAGER, RESPONSE_TIMEOUT, Some(fence.gate())).await?;
    let lease_client = hub.client_with(FIELD_MANAGER, leader::REQUEST_TIMEOUT, None).await?;
    let readiness = Readiness::waiting_for(&["custom resources"]);
    let (metrics, registry) = Metrics::registered();
    metrics.provider_file(providers.is_some());
    let identity = pod_name.unwrap_or_else(|| format!("{}-{}", LEASE, std::process::id()));
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        releases = %releases.releases.display(),
        multicluster = providers.is_some(),
        remote_deployments_poll_interval = ?poll_interval,
        "starting"
    );

    let certificate = CertificateResolver::default();
    let is_secure = admin.secure_metrics;
    let served = admin.serve(readiness.clone(), registry, Arc::new(certificate.clone()), client.clone(), stop.clone());
    let (hub, own_namespace) = (client.clone(), namespace.clone());
    let certificates = async {
        if is_secure {
            follow_secret(&hub, &own_namespace, &metrics_certificate_secret, &certificate).await;
        }
        std::future::pending::<()>().await;
    };
    let lead = async {
        let settings = leader::Settings {
            namespace: namespace.clone(),
            name: LEASE.to_owned(),
            identity: identity.clone(),
            shards,
            fence: fence.clone(),
        };
        // A replica on standby is ready: it receives no requests, and a rollout must not wait for
        // the Lease.
        readiness.set("custom resources", true);
        // Room for all shards: their Leases are renewed also while nothing is received yet.
        let (sender, mut shard_events) = mpsc::channel(MAX_SHARDS as usize);
        let identified = hub_identity::read(&client, hub_name);
        let hub_identity = tokio::select! {
            identity = identified => identity,
            () = stop.cancelled() => return Ok(()),
        };
        let candidate = leader::run(lease_client, settings, stop.clone(), sender);
        let hub = fence.guard(writer);
        let work = async {
            let Some(ShardEvent::Acquired(first)) = shard_events.recv().await else { return RunError::WatchesEnded };
            readiness.set("custom resources", false);
            // It ends, and starts again later, so that it has no Lease meanwhile.
            if let Err(other) = other_release::check(&client, &namespace).await {
                return RunError::OtherOperator(other);
            }
            let system_namespace = namespace.clone();
            library.keeps_installed = keep_installed_versions;
            library.archive = Some(Archive::new(hub.clone(), &system_namespace));
            let fetcher = CredentialFetcher {
                secrets: SecretReader { hub: hub.clone(), namespace, requires_binding: access.require_bound_secrets },
                timeout: exec_timeout,
                metrics: Arc::new(metrics.clone()),
            };
            let context = Arc::new(Context {
                hub: hub.clone(),
                hub_identity,
                library,
                settings: releases.settings(),
                providers,
                profile_namespaces: access.profile_namespaces,
                allows_http_servers: access.allow_http_servers,
                rendered: RenderCache::default(),
                profiles: ClusterProfiles::default(),
                connections: Connections::new(fetcher, fence.clone()),
                registry: Registry::default(),
                manages_fleets: enable_fleets,
                installs_locally: local_installation,
                refuses_used_namespaces: refuse_used_namespaces,
                authors: enforce_authorization.then(|| Authors::new(hub.clone(), &system_namespace)),
                hub_changes: HubChanges::default(),
                go_operator: GoOperator::default(),
                events: Events::start(hub.clone(), identity),
                metrics,
                poll_interval,
                shards,
                reconcile_permits: ReconcilePermits::new(usize::from(max_concurrent_reconciles)),
                stop: stop.clone(),
            });
            let supervisor = supervisor::run(Arc::clone(&context), readiness.clone(), first, shard_events);
            let startup = async {
                let bundle = releases.releases.clone();
                let catalog = catalog::publish(hub.clone(), system_namespace.clone(), bundle, keep_installed_versions);
                let conversion = async {
                    // Without a local installation, the operator may not change definitions.
                    if local_installation {
                        conversion::remove_conversion_webhook(hub.clone()).await;
                    }
                };
                let suspension = suspension::end_overdue_suspensions(hub.clone());
                futures::join!(catalog, conversion, suspension);
                std::future::pending::<()>().await;
            };
            tokio::select! {
                () = supervisor => {}
                () = context.go_operator.watch(client.clone(), &system_namespace) => {}
                () = startup => {}
            }
            RunError::WatchesEnded
        };
        tokio::select! {
            holds_lease = candidate => if holds_lease { Ok(()) } else { Err(RunError::LeaseLost) },
            error = work => Err(error),
        }
    };
    let serve_failed = async {
        match served.await {
            Ok(()) => std::future::pending().await,
            Err(error) => error,
        }
    };
    tokio::select! {
        result = lead => result,
        error = serve_failed => Err(RunError::Admin(error)),
        () = certificates => Ok(()),
    }
}
