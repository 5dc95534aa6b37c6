//! Detects a Go operator (knative/operator) that runs in the operator's own namespace by the Leases
//! that it renews. Two operators must not manage one resource, so this one writes nothing to
//! clusters meanwhile.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use knative_operator_runtime::error_text;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;

/// Prefix of the names of its Leases: `knative-operator.<reconciler>.<number>-of-<number>`.
const PREFIX: &str = "knative-operator.";
/// Default duration of a Lease; the Go operator's default.
const DEFAULT_LEASE_DURATION: Duration = Duration::from_secs(60);

/// A running Go operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Namespace and name of a Lease that it renews.
    pub lease: String,
    /// Its holder: the name of a Pod, and an identifier.
    pub holder: String,
    /// Time at which this process noticed it.
    pub since: Instant,
}

/// State of the Go operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Unknown: the Leases are not listed yet.
    #[default]
    Unknown,
    /// Not running, or its Leases may not be read.
    Stopped,
    /// Running.
    Running(Running),
}

/// Watches the Leases of the Go operator.
#[derive(Debug, Default)]
pub struct GoOperator(watch::Sender<State>);

/// A Lease of the Go operator.
#[derive(Clone, Debug, PartialEq, Eq)]
struct GoLease {
    holder: String,
    renewed: Option<Timestamp>,
    /// Expiry by the clock of this process.
    until: Instant,
}

impl GoOperator {
    /// Whether the Leases have been listed.
    pub fn is_known(&self) -> bool {
        *self.0.borrow() != State::Unknown
    }

    /// The running Go operator, if any.
    pub fn running(&self) -> Option<Running> {
        match &*self.0.borrow() {
            State::Running(running) => Some(running.clone()),
            State::Unknown | State::Stopped => None,
        }
    }

    /// Notifies of its start and stop.
    pub fn changes(&self) -> watch::Receiver<State> {
        self.0.subscribe()
    }

    /// Watches the Leases in `namespace` until the task ends.
    pub async fn watch(&self, client: Client, namespace: &str) {
        let leases: Api<Lease> = Api::namespaced(client, namespace);
        let mut events = std::pin::pin!(watcher(leases, watcher::Config::default()).default_backoff());
        let mut leases = Leases::default();
        loop {
            let now = Instant::now();
            let valid = leases.records.values().map(|record| record.until).filter(|until| *until > now).min();
            let expired = async {
                match valid {
                    Some(until) => tokio::time::sleep_until(until.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = events.next() => match event {
                    Some(event) => leases.record(event, Instant::now(), Timestamp::now()),
                    None => return std::future::pending().await,
                },
                () = expired => {}
            }
            if leases.are_listed {
                self.publish(namespace, &leases.records);
            }
        }
    }

    fn publish(&self, namespace: &str, records: &HashMap<String, GoLease>) {
        let now = Instant::now();
        let valid = records.iter().filter(|(_, record)| record.until > now).min_by(|a, b| a.0.cmp(b.0));
        self.0.send_if_modified(|known| {
            let since = if let State::Running(running) = known { running.since } else { now };
            let running = |(name, record): (&String, &GoLease)| Running {
                lease: format!("{namespace}/{name}"),
                holder: record.holder.clone(),
                since,
            };
            let found = valid.map(running).map_or(State::Stopped, State::Running);
            let changed = *known != found;
            *known = found;
            changed
        });
    }
}

/// The Leases of the Go operator, from a watch.
#[derive(Debug, Default)]
struct Leases {
    records: HashMap<String, GoLease>,
    /// Names in a list that is not complete yet. Until it is, what was known before is true.
    listing: HashSet<String>,
    /// Whether they were listed, or may not be read.
    are_listed: bool,
}

impl Leases {
    /// Records `event` at `now`, by the `clock`.
    fn record(&mut self, event: watcher::Result<Event<Lease>>, now: Instant, clock: Timestamp) {
        match event {
            Ok(Event::Init) => self.listing.clear(),
            Ok(Event::InitApply(lease)) => {
                self.listing.insert(lease.name_any());
                set(&mut self.records, &lease, now, clock);
            }
            Ok(Event::Apply(lease)) => set(&mut self.records, &lease, now, clock),
            Ok(Event::Delete(lease)) => drop(self.records.remove(&lease.name_any())),
            Ok(Event::InitDone) => {
                let listed = std::mem::take(&mut self.listing);
                self.records.retain(|name, _| listed.contains(name));
                self.are_listed = true;
            }
            Err(error) => {
                tracing::warn!(error = error_text(&error), "cannot watch the Leases in the operator's namespace");
                // A missing permission must not stop the operator. Other errors pass.
                self.are_listed |= is_forbidden(&error);
            }
        }
    }
}

/// Whether the operator may not read the Leases.
fn is_forbidden(error: &watcher::Error) -> bool {
    use watcher::Error::{InitialListFailed, WatchStartFailed};
    let (InitialListFailed(error) | WatchStartFailed(error)) = error else { return false };
    matches!(error, kube::Error::Api(status) if status.code == 403)
}

/// Records `lease` if it is the Go operator's. A renewal counts from the time of its observation,
/// so that clocks need not agree.
fn set(records: &mut HashMap<String, GoLease>, lease: &Lease, now: Instant, clock: Timestamp) {
    let name = lease.name_any();
    let Some(spec) = lease.spec.as_ref().filter(|_| is_go_operator_lease(&name)) else { return };
    let holder = spec.holder_identity.clone().unwrap_or_default();
    if holder.is_empty() {
        records.remove(&name);
        return;
    }
    let renewed = spec.renew_time.as_ref().map(|time| time.0);
    let valid = spec
        .lease_duration_seconds
        .and_then(|s| u64::try_from(s).ok())
        .map_or(DEFAULT_LEASE_DURATION, Duration::from_secs);
    let until = match records.get(&name) {
        Some(before) if before.renewed == renewed => before.until,
        Some(_) => now + valid,
        // Observed for the first time: it may be abandoned.
        None => {
            let age =
                renewed.map_or(valid, |renewed| Duration::try_from(clock.duration_since(renewed)).unwrap_or_default());
            now + valid.saturating_sub(age)
        }
    };
    records.insert(name, GoLease { holder, renewed, until });
}

/// Whether a Lease with this name is the Go operator's.
fn is_go_operator_lease(name: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let last =
        name.strip_prefix(PREFIX).and_then(|rest| rest.rsplit_once('.')).and_then(|(_, last)| last.split_once("-of-"));
    last.is_some_and(|(shard, shards)| number(shard) && number(shards))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NAME: &str = "knative-operator.knative.dev.operator.pkg.reconciler.knativeserving.reconciler.00-of-01";

    fn lease(name: &str, holder: &str, renewed: &str) -> Lease {
        serde_json::from_value(
            json!({"metadata": {"name": name}, "spec": {"holderIdentity": holder, "leaseDurationSeconds": 60, "renewTime": renewed}}),
        )
        .unwrap()
    }

    #[test]
    fn leases_of_go_operator_are_recognized() {
        assert!(is_go_operator_lease(NAME));
        for other in [
            "knative-operator",
            "knative-operator-0-of-4",
            "knative-operator.x",
            "other.x.00-of-01",
            "knative-operator.x.a-of-b",
        ] {
            assert!(!is_go_operator_lease(other), "{other}");
        }
    }

    #[test]
    fn go_operator_runs_until_a_complete_list_lacks_its_lease() {
        let (now, clock) = (Instant::now(), "2026-01-01T12:00:00Z".parse().unwrap());
        let (operator, mut leases) = (GoOperator::default(), Leases::default());
        let mut is_running = |event| {
            leases.record(event, now, clock);
            operator.publish("n", &leases.records);
            operator.running().is_some()
        };
        let lease = || lease(NAME, "pod", "2026-01-01T12:00:00Z");
        assert!(!is_running(Ok(Event::Init)) && is_running(Ok(Event::InitApply(lease()))));
        assert!(is_running(Ok(Event::InitDone)));
        // The watch begins again, and the first list fails.
        assert!(is_running(Ok(Event::Init)) && is_running(Err(watcher::Error::NoResourceVersion)));
        assert!(is_running(Ok(Event::Init)) && is_running(Ok(Event::InitApply(lease()))));
        assert!(is_running(Ok(Event::InitDone)) && is_running(Ok(Event::Init)));
        assert!(!is_running(Ok(Event::InitDone)));
    }

    #[test]
    fn only_a_missing_permission_lets_the_operator_go_on() {
        let failed = |code| {
            let status = kube::core::Status { code, ..kube::core::Status::default() };
            let mut leases = Leases::default();
            let error = watcher::Error::InitialListFailed(kube::Error::Api(Box::new(status)));
            leases.record(Err(error), Instant::now(), Timestamp::UNIX_EPOCH);
            leases.are_listed
        };
        assert_eq!([403, 429, 500, 503].map(failed), [true, false, false, false]);
    }

    #[test]
    fn renewed_lease_is_valid_and_abandoned_lease_is_not() {
        let (now, clock) = (Instant::now(), "2026-01-01T12:00:00Z".parse().unwrap());
        let mut records = HashMap::new();
        let mut until = |lease: Lease, after: u64| {
            set(&mut records, &lease, now + Duration::from_secs(after), clock);
            records.get(NAME).map(|record| record.until.saturating_duration_since(now).as_secs())
        };
        assert_eq!(until(lease(NAME, "", "2026-01-01T12:00:00Z"), 0), None);
        // An hour old when observed first.
        assert_eq!(until(lease(NAME, "pod", "2026-01-01T11:00:00Z"), 0), Some(0));
        // Renewed while this process watches, regardless of the other clock.
        assert_eq!(until(lease(NAME, "pod", "2026-01-01T11:00:10Z"), 10), Some(70));
        assert_eq!(until(lease(NAME, "pod", "2026-01-01T11:00:10Z"), 20), Some(70));
        assert_eq!(until(lease(NAME, "", "2026-01-01T11:00:10Z"), 30), None);
    }
}
