//! The operator itself: builds what [`crate::controller`] needs, waits for the Lease, and runs until it is told to stop.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::Arc;

use knative_operator_runtime::hub::HubError;
use knative_operator_runtime::ready::Readiness;
use knative_operator_runtime::{admin, process, signal};
use knative_operator_shared::label::FIELD_MANAGER;
use tokio::sync::mpsc;

use crate::args::RunArgs;
use crate::cluster::connections::Connections;
use crate::cluster::credential::Issuer;
use crate::cluster::provider::{ProviderFile, ProviderFileError};
use crate::controller::events::Events;
use crate::controller::go_operator::GoOperator;
use crate::controller::plans::Plans;
use crate::controller::profiles::Profiles;
use crate::controller::siblings::Siblings;
use crate::controller::turns::Turns;
use crate::controller::{Context, fleet};
use crate::conversion;
use crate::leader;
use crate::metrics::Metrics;
use crate::offer;
use crate::release::DownloadsError;

/// Threads that do the work.
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
    #[error("{0} can't be listened on")]
    Bind(SocketAddr, #[source] std::io::Error),
    #[error("signals can't be received")]
    Signal(#[source] std::io::Error),
    #[error("the Lease is lost")]
    Lost,
    #[error("the watches on the hub ended")]
    Ended,
}

/// Runs the operator.
pub fn run(args: RunArgs) -> ExitCode {
    let log = args.log.clone();
    process::run(&log, THREADS, serve(args))
}

async fn serve(args: RunArgs) -> Result<(), RunError> {
    let poll_interval = args.poll_interval();
    let RunArgs {
        log: _,
        hub,
        clusterprofile_provider_file,
        remote_deployments_poll_interval: _,
        releases,
        exec_timeout,
        max_concurrent_reconciles,
        shards,
        bind_address,
        metrics_port,
        namespace,
        pod_name,
    } = args;
    // A file that is of no use is told at once, not when the first resource needs it.
    let providers = clusterprofile_provider_file.as_deref().map(ProviderFile::read).transpose()?;
    let library = releases.library()?;
    let stop = signal::stop().map_err(RunError::Signal)?;
    let client = hub.client(FIELD_MANAGER).await?;
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

    let address = SocketAddr::new(bind_address, metrics_port);
    let served = admin::serve(address, readiness.clone(), Arc::new(registry), stop.clone());
    let lead = async {
        let settings = leader::Settings {
            namespace: namespace.clone(),
            name: LEASE.to_owned(),
            identity: identity.clone(),
            shards,
        };
        // A replica that waits for its turn is ready: nothing is sent to it, and a rollout must not wait for the Lease.
        readiness.set("custom resources", true);
        let (tell, mut told) = mpsc::channel(1);
        let candidate = leader::run(client.clone(), settings, stop.clone(), tell);
        let work = async {
            let Some(leader::Told::Gained(first)) = told.recv().await else { return };
            readiness.set("custom resources", false);
            let offered = namespace.clone();
            let issuer = Issuer { hub: client.clone(), namespace, limit: exec_timeout, metrics: metrics.clone() };
            let context = Arc::new(Context {
                hub: client.clone(),
                library,
                settings: releases.settings(),
                providers,
                plans: Plans::default(),
                profiles: Profiles::default(),
                connections: Connections::new(issuer),
                siblings: Siblings::default(),
                go_operator: GoOperator::default(),
                events: Events::start(client.clone(), identity),
                metrics,
                poll_interval,
                shards,
                turns: Turns::new(usize::from(max_concurrent_reconciles)),
                stop: stop.clone(),
            });
            let offer = offer::tell(client.clone(), offered.clone(), releases.releases.clone());
            let (fleet, go_operator) =
                (fleet::run(Arc::clone(&context), readiness.clone(), first, told), &context.go_operator);
            tokio::select! {
                () = fleet => {}
                () = go_operator.follow(client.clone(), &offered) => {}
                () = async { futures::join!(offer, conversion::remove(client.clone())); std::future::pending().await } => {}
            }
        };
        tokio::select! {
            kept = candidate => if kept { Ok(()) } else { Err(RunError::Lost) },
            () = work => Err(RunError::Ended),
        }
    };
    tokio::select! {
        result = lead => result,
        result = async { let r = served.await; if r.is_ok() { std::future::pending::<()>().await } r } => result.map_err(|e| RunError::Bind(address, e)),
    }
}
