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
use knative_operator_cluster_access::connections::Connections;
use knative_operator_cluster_access::credential::CredentialFetcher;
use knative_operator_cluster_access::profiles::ClusterProfiles;
use knative_operator_cluster_access::provider::{ProviderFile, ProviderFileError};
use knative_operator_cluster_access::secret::SecretReader;
use knative_operator_overview::unresolved::ANNOTATIONS;
use knative_operator_release::{Archive, DownloadsError};

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
        enable_debug,
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
    let diagnostics = Diagnostics::new(enable_debug, &identity, &fence);
    let (debug, resolver) = (report_of(&diagnostics, is_secure)?, Arc::new(certificate.clone()));
    let served = admin.serve(readiness.clone(), registry, resolver, client.clone(), debug, stop.clone());
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
            shown: diagnostics.leases(),
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
            match other_release::check(&client, &namespace, &stop).await {
                Ok(true) => {}
                Ok(false) => {
                    // Nothing has begun, so the Leases can be released at once.
                    drop(shard_events);
                    return std::future::pending().await;
                }
                Err(other) => return RunError::OtherOperator(other),
            }
            let system_namespace = namespace.clone();
            library.keeps_installed = keep_installed_versions;
            library.archive = Some(Archive::new(hub.clone(), &system_namespace));
            let fetcher = CredentialFetcher {
                secrets: SecretReader {
                    hub: hub.clone(),
                    namespace,
                    requires_binding: access.require_bound_secrets,
                    annotations: ANNOTATIONS,
                    program: FIELD_MANAGER,
                },
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
                connections: Connections::new(fetcher, fence.gate()),
                registry: Registry::default(),
                manages_fleets: enable_fleets,
                installs_locally: local_installation,
                refuses_used_namespaces: refuse_used_namespaces,
                authors: enforce_authorization.then(|| Authors::new(hub.clone(), &system_namespace)),
                hub_changes: HubChanges::default(),
                go_operator: GoOperator::default(),
                events: Events::start(hub.clone(), identity),
                metrics,
                diagnostics,
                poll_interval,
                shards,
                reconcile_permits: ReconcilePermits::new(usize::from(max_concurrent_reconciles)),
                stop: stop.clone(),
            });
            let shared = Arc::downgrade(&context);
            context.diagnostics.ask(move || shared.upgrade().map(|context| context.live()));
            let supervisor = supervisor::run(Arc::clone(&context), readiness.clone(), first, shard_events);
            let bundle = releases.releases.clone();
            let catalog = catalog::publish(hub.clone(), system_namespace.clone(), bundle, keep_installed_versions);
            let startup = prepare_hub(&hub, catalog, local_installation);
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
    tokio::select! {
        result = lead => result,
        error = failure_of(served) => Err(RunError::Admin(error)),
        () = certificates => Ok(()),
    }
}
