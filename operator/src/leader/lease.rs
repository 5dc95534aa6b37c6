//! The Lease itself (`coordination.k8s.io/v1`).

use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::election::{Observed, Record, Step, Timing};

const TIMING: Timing = Timing { lease: Duration::from_secs(15), deadline: Duration::from_secs(10), retry: Duration::from_secs(2) };

/// Which Lease, and who wants it.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Name of this candidate, which no other has.
    pub identity: String,
}

/// Resolves when the Lease is lost, or given back after `stop`.
pub type Lost = oneshot::Receiver<()>;

/// Waits until the Lease is held, then keeps it until it is lost or `stop`; none if `stop` came first.
pub async fn acquire(client: Client, settings: Settings, stop: CancellationToken) -> Option<Lost> {
    let leases = Api::<Lease>::namespaced(client, &settings.namespace);
    let mut observed = Observed::default();
    loop {
        let started = Instant::now();
        match step(&leases, &settings, &mut observed).await {
            Ok(true) => {
                tracing::info!(identity = settings.identity, lease = settings.name, "leading");
                let (lost, resolved) = oneshot::channel();
                tokio::spawn(async move {
                    keep(&leases, &settings, &mut observed, started, &stop).await;
                    let _ = lost.send(());
                });
                return Some(resolved);
            }
            Ok(false) => {}
            Err(error) => tracing::warn!(error = knative_operator_runtime::chain(&error), "Lease not read"),
        }
        tokio::select! {
            () = tokio::time::sleep(TIMING.retry) => {}
            () = stop.cancelled() => return None,
        }
    }
}

/// Renews until that has not worked for as long as the deadline, somebody else holds it, or `stop`.
async fn keep(leases: &Api<Lease>, settings: &Settings, observed: &mut Observed, mut renewed: Instant, stop: &CancellationToken) {
    loop {
        tokio::select! {
            () = tokio::time::sleep(TIMING.retry) => {}
            () = stop.cancelled() => {
                release(leases, settings).await;
                return;
            }
        }
        let started = Instant::now();
        let left = TIMING.deadline.saturating_sub(renewed.elapsed());
        match tokio::time::timeout(left, step(leases, settings, observed)).await {
            Ok(Ok(true)) => renewed = started,
            Ok(Ok(false)) => {
                tracing::error!(lease = settings.name, "somebody else holds the Lease");
                return;
            }
            Ok(Err(error)) => tracing::warn!(error = knative_operator_runtime::chain(&error), "Lease not renewed"),
            Err(_) => {}
        }
        if renewed.elapsed() >= TIMING.deadline {
            tracing::error!(lease = settings.name, "the Lease could not be renewed for {:?}", TIMING.deadline);
            return;
        }
    }
}

/// Reads, decides, and writes with what was read; whether the Lease is held now.
async fn step(leases: &Api<Lease>, settings: &Settings, observed: &mut Observed) -> kube::Result<bool> {
    let read = leases.get_opt(&settings.name).await?;
    let now = MicroTime(Timestamp::now());
    let spec = |before: Option<&LeaseSpec>, taken: bool| LeaseSpec {
        holder_identity: Some(settings.identity.clone()),
        lease_duration_seconds: i32::try_from(TIMING.lease.as_secs()).ok(),
        acquire_time: if taken { Some(now.clone()) } else { before.and_then(|b| b.acquire_time.clone()) },
        renew_time: Some(now.clone()),
        lease_transitions: Some(before.and_then(|b| b.lease_transitions).unwrap_or_default() + i32::from(taken && before.is_some())),
        ..LeaseSpec::default()
    };
    let step = observed.next(&settings.identity, read.as_ref().map(record), Instant::now());
    let written = match (step, read) {
        (Step::Wait, _) => return Ok(false),
        (Step::Renew | Step::Take, Some(mut lease)) => {
            lease.spec = Some(spec(lease.spec.as_ref(), step == Step::Take));
            // The object still carries the resourceVersion that was read: a write in between makes this one fail.
            leases.replace(&settings.name, &PostParams::default(), &lease).await
        }
        (_, _) => {
            let metadata = ObjectMeta { name: Some(settings.name.clone()), ..ObjectMeta::default() };
            leases.create(&PostParams::default(), &Lease { metadata, spec: Some(spec(None, true)) }).await
        }
    };
    match written {
        Ok(_) => Ok(true),
        // Lost the race. A holder that gets here reads again, and again, until its deadline.
        Err(kube::Error::Api(status)) if status.code == 409 && step != Step::Renew => Ok(false),
        Err(error) => Err(error),
    }
}

fn record(lease: &Lease) -> Record {
    let spec = lease.spec.as_ref();
    let seconds = spec.and_then(|s| s.lease_duration_seconds).and_then(|s| u64::try_from(s).ok());
    Record {
        holder: spec.and_then(|s| s.holder_identity.clone()).unwrap_or_default(),
        version: lease.metadata.resource_version.clone().unwrap_or_default(),
        lease: seconds.map_or(TIMING.lease, Duration::from_secs),
    }
}

/// Gives the Lease back, so that the next holder need not wait for its end.
async fn release(leases: &Api<Lease>, settings: &Settings) {
    let Ok(Some(mut lease)) = leases.get_opt(&settings.name).await else { return };
    if record(&lease).holder == settings.identity {
        if let Some(spec) = lease.spec.as_mut() {
            spec.holder_identity = None;
            spec.lease_duration_seconds = Some(1);
        }
        // With the version that was read: if that fails, somebody else holds it already.
        let _ = leases.replace(&settings.name, &PostParams::default(), &lease).await;
    }
}
