//! The operator process: builds the [`crate::controller`] context, waits for the Lease, and runs
//! until it receives a signal.

use std::process::ExitCode;
use std::sync::Arc;

use knative_operator_certs::{CertificateResolver, follow_secret};
use knative_operator_cli::{MAX_SHARDS, RunArgs};
use knative_operator_runtime::admin::{AdminError, DebugReport};
use knative_operator_runtime::fence::Fence;
use knative_operator_runtime::hub::{HubError, RESPONSE_TIMEOUT};
use knative_operator_runtime::ready::Readiness;
use knative_operator_runtime::{process, signal};
use knative_operator_shared::label::FIELD_MANAGER;
use kube::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::controller::author::Authors;
use crate::controller::concurrency::ReconcilePermits;
use crate::controller::context::Context;
use crate::controller::events::Events;
use crate::controller::hub_changes::HubChanges;
use crate::controller::registry::Registry;
use crate::controller::render_cache::RenderCache;
use crate::controller::supervisor;
use crate::diagnostics::Diagnostics;
use crate::leader::{self, ShardEvent};
use crate::metrics::Metrics;
use crate::startup::go_operator::GoOperator;
use crate::startup::{catalog, conversion, hub_identity, other_release, suspension};
use knative_operator_apply::observer::Watching;
use knative_operator_cluster_access::connections::Connections;
use knative_operator_cluster_access::credential::CredentialFetcher;
use knative_operator_cluster_access::profiles::ClusterProfiles;
use knative_operator_cluster_access::provider::{ProviderFile, ProviderFileError};
use knative_operator_cluster_access::secret::SecretReader;
use knative_operator_objects::Hub;
use knative_operator_overview::unresolved::ANNOTATIONS;
use knative_operator_release::{Archive, DownloadsError, Library};

/// Worker threads.
const THREADS: usize = 2;
/// Name of the Lease.
const LEASE: &str = "knative-operator";

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
    /// `--enable-debug` without `--secure-metrics`.
    #[error("--enable-debug needs --secure-metrics: only those who may read metrics may read /debug")]
    InsecureDebug,
}

/// Runs the operator.
pub fn run(args: RunArgs) -> ExitCode {
    let log = args.log.clone();
    process::run(FIELD_MANAGER, &log, THREADS, serve(args))
}

/// What `/debug` serves, if it is enabled, to those who may read metrics.
fn report_of(diagnostics: &Diagnostics, is_secure: bool) -> Result<Option<DebugReport>, RunError> {
    if !diagnostics.is_enabled() {
        return Ok(None);
    }
    let diagnostics = is_secure.then(|| diagnostics.clone()).ok_or(RunError::InsecureDebug)?;
    Ok(Some(Arc::new(move || diagnostics.report())))
}

/// What the operator does on the hub once it leads, beside its work: it publishes the `catalog`.
async fn prepare_hub(hub: &Client, catalog: impl Future<Output = ()>, installs_locally: bool) {
    let conversion = async {
        // Without a local installation, the operator may not change definitions.
        if installs_locally {
            conversion::remove_conversion_webhook(hub.clone()).await;
        }
    };
    futures::join!(catalog, conversion, suspension::end_overdue_suspensions(hub.clone()));
    std::future::pending::<()>().await;
}

/// Waits for the failure of `served`, which ends only then.
async fn failure_of(served: impl Future<Output = Result<(), AdminError>>) -> AdminError {
    match served.await {
        Ok(()) => std::future::pending().await,
        Err(error) => error,
    }
}

async fn serve(args: RunArgs) -> Result<(), RunError> {
    // Fails at the start if the file is unusable, not when the first resource needs it.
    let providers = args.clusterprofile_provider_file.as_deref().map(ProviderFile::read).transpose()?;
    let library = args.releases.library(args.access.host_policy())?;
    let stop = signal::stop().map_err(RunError::Signal)?;
    let (client, fence) = (args.hub.client(FIELD_MANAGER).await?, Fence::default());
    let writer = args.hub.client_with(FIELD_MANAGER, RESPONSE_TIMEOUT, Some(fence.gate())).await?;
    let lease_client = args.hub.client_with(FIELD_MANAGER, leader::REQUEST_TIMEOUT, None).await?;
    let readiness = Readiness::waiting_for(&["custom resources"]);
    let (metrics, registry) = Metrics::registered();
    metrics.provider_file(providers.is_some());
    let identity = args.pod_name.clone().unwrap_or_else(|| format!("{}-{}", LEASE, std::process::id()));
    tracing::info!(
        version = env!("CARGO_PKG_VERSION"),
        releases = %args.releases.releases.display(),
        multicluster = providers.is_some(),
        remote_deployments_poll_interval = ?args.poll_interval(),
        "starting"
    );

    let certificate = CertificateResolver::default();
    let is_secure = args.admin.secure_metrics;
    let diagnostics = Diagnostics::new(args.enable_debug, &identity, &fence);
    let (debug, resolver) = (report_of(&diagnostics, is_secure)?, Arc::new(certificate.clone()));
    let served = args.admin.clone().serve(readiness.clone(), registry, resolver, client.clone(), debug, stop.clone());
    let (reader, namespace, secret) = (client.clone(), args.namespace.clone(), args.metrics_certificate_secret.clone());
    let certificates = async {
        if is_secure {
            follow_secret(&reader, &namespace, &secret, &certificate).await;
        }
        std::future::pending::<()>().await;
    };
    let hub = fence.guard(writer);
    let replica =
        Replica { args, providers, library, client, hub, identity, fence, readiness, metrics, diagnostics, stop };
    tokio::select! {
        result = replica.lead(lease_client) => result,
        error = failure_of(served) => Err(RunError::Admin(error)),
        () = certificates => Ok(()),
    }
}

/// What a replica has from its start.
struct Replica {
    args: RunArgs,
    providers: Option<ProviderFile>,
    library: Library,
    /// Client of the hub.
    client: Client,
    /// Client of the hub whose writes pass while the replica has its Leases.
    hub: Client,
    identity: String,
    fence: Fence,
    readiness: Readiness,
    metrics: Metrics,
    diagnostics: Diagnostics,
    stop: CancellationToken,
}

impl Replica {
    /// Waits for a Lease, and works while it has one.
    async fn lead(self, lease_client: Client) -> Result<(), RunError> {
        // A replica on standby is ready: it receives no requests, and a rollout must not wait for
        // the Lease.
        self.readiness.set("custom resources", true);
        let hub_identity = tokio::select! {
            identity = hub_identity::read(&self.client, self.args.hub_name.clone()) => identity,
            () = self.stop.cancelled() => return Ok(()),
        };
        let settings = leader::Settings {
            namespace: self.args.namespace.clone(),
            name: LEASE.to_owned(),
            identity: self.identity.clone(),
            shards: self.args.shards,
            fence: self.fence.clone(),
            shown: self.diagnostics.leases(),
        };
        // Room for all shards: their Leases are renewed also while nothing is received yet.
        let (sender, shard_events) = mpsc::channel(MAX_SHARDS as usize);
        let candidate = leader::run(lease_client, settings, self.stop.clone(), sender);
        tokio::select! {
            holds_lease = candidate => if holds_lease { Ok(()) } else { Err(RunError::LeaseLost) },
            error = self.work(hub_identity, shard_events) => Err(error),
        }
    }

    /// Works from its first shard until the watches end.
    async fn work(self, hub_identity: Hub, mut shard_events: mpsc::Receiver<ShardEvent>) -> RunError {
        let Some(ShardEvent::Acquired(first)) = shard_events.recv().await else { return RunError::WatchesEnded };
        self.readiness.set("custom resources", false);
        let namespace = self.args.namespace.clone();
        // It ends, and starts again later, so that it has no Lease meanwhile.
        match other_release::check(&self.client, &namespace, &self.stop).await {
            Ok(true) => {}
            Ok(false) => {
                // Nothing has begun, so the Leases can be released at once.
                drop(shard_events);
                return std::future::pending().await;
            }
            Err(other) => return RunError::OtherOperator(other),
        }
        let (client, hub, readiness) = (self.client.clone(), self.hub.clone(), self.readiness.clone());
        let RunArgs { keep_installed_versions, local_installation, .. } = self.args;
        let bundle = self.args.releases.releases.clone();
        let context = Arc::new(self.context(hub_identity));
        let shared = Arc::downgrade(&context);
        context.diagnostics.ask(move || shared.upgrade().map(|context| context.live()));
        let catalog = catalog::publish(hub.clone(), namespace.clone(), bundle, keep_installed_versions);
        tokio::select! {
            () = supervisor::run(Arc::clone(&context), readiness, first, shard_events) => {}
            () = context.go_operator.watch(client, &namespace) => {}
            () = prepare_hub(&hub, catalog, local_installation) => {}
        }
        RunError::WatchesEnded
    }

    /// What all actors share.
    fn context(self, hub_identity: Hub) -> Context {
        let Self { args, providers, mut library, hub, identity, fence, metrics, diagnostics, stop, .. } = self;
        let (settings, poll) = (args.releases.settings(), args.poll_interval());
        library.keeps_installed = args.keep_installed_versions;
        library.archive = Some(Archive::new(hub.clone(), &args.namespace));
        let authors = args.enforce_authorization.then(|| Authors::new(hub.clone(), &args.namespace));
        let fetcher = CredentialFetcher {
            secrets: SecretReader {
                hub: hub.clone(),
                namespace: args.namespace,
                requires_binding: args.access.require_bound_secrets,
                annotations: ANNOTATIONS,
                program: FIELD_MANAGER,
            },
            timeout: args.exec_timeout,
            metrics: Arc::new(metrics.clone()),
        };
        let connections = Connections::new(fetcher, fence.gate());
        let watching = Watching { poll, clusters: connections.spokes() };
        Context {
            hub: hub.clone(),
            hub_identity,
            library,
            settings,
            providers,
            profile_namespaces: args.access.profile_namespaces,
            allows_http_servers: args.access.allow_http_servers,
            rendered: RenderCache::default(),
            profiles: ClusterProfiles::default(),
            connections,
            registry: Registry::default(),
            manages_fleets: args.enable_fleets,
            installs_locally: args.local_installation,
            refuses_used_namespaces: args.refuse_used_namespaces,
            authors,
            hub_changes: HubChanges::default(),
            go_operator: GoOperator::default(),
            events: Events::start(hub, identity),
            metrics,
            diagnostics,
            watching,
            shards: args.shards,
            reconcile_permits: ReconcilePermits::new(usize::from(args.max_concurrent_reconciles)),
            stop,
        }
    }
}
