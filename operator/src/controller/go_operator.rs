//! Whether the Go operator (knative/operator) still runs in the operator's own namespace: it renews its Leases. Two operators must not
//! manage one resource, so nothing is written to clusters while it does.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use futures::StreamExt;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use knative_operator_runtime::words;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, ResourceExt};
use tokio::sync::watch;

/// Beginning of the names of its Leases: `knative-operator.<reconciler>.<number>-of-<number>`.
const PREFIX: &str = "knative-operator.";
/// How long a Lease is valid that doesn't say so itself; the Go operator's default.
const VALID: Duration = Duration::from_secs(60);

/// A Go operator that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Running {
    /// Namespace and name of a Lease that it renews.
    pub lease: String,
    /// Who renews it: the name of a Pod, and an identifier.
    pub holder: String,
    /// Since when this process knows.
    pub since: Instant,
}

/// What is known about the Go operator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum State {
    /// Nothing: the Leases are yet to be listed.
    #[default]
    Unknown,
    /// It doesn't run, or the Leases can't be watched.
    Stopped,
    /// It runs.
    Running(Running),
}

/// Follows the Go operator's Leases.
#[derive(Debug, Default)]
pub struct GoOperator(watch::Sender<State>);

/// A Lease of the Go operator's.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Record {
    holder: String,
    renewed: Option<Timestamp>,
    /// Until when it counts as renewed, by the clock of this process.
    until: Instant,
}

impl GoOperator {
    /// Whether the Leases were looked at.
    pub fn is_known(&self) -> bool {
        *self.0.borrow() != State::Unknown
    }

    /// The Go operator that runs, if one does.
    pub fn running(&self) -> Option<Running> {
        match &*self.0.borrow() {
            State::Running(running) => Some(running.clone()),
            State::Unknown | State::Stopped => None,
        }
    }

    /// Tells when it starts or stops.
    pub fn changes(&self) -> watch::Receiver<State> {
        self.0.subscribe()
    }

    /// Watches the Leases in `namespace`, for ever.
    pub async fn follow(&self, client: Client, namespace: &str) {
        let leases: Api<Lease> = Api::namespaced(client, namespace);
        let mut events = std::pin::pin!(watcher(leases, watcher::Config::default()).default_backoff());
        let mut records: HashMap<String, Record> = HashMap::new();
        let mut listed = false;
        loop {
            let now = Instant::now();
            let valid = records.values().map(|record| record.until).filter(|until| *until > now).min();
            let expired = async {
                match valid {
                    Some(until) => tokio::time::sleep_until(until.into()).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                event = events.next() => match event {
                    Some(Ok(Event::Init)) => records.clear(),
                    Some(Ok(Event::InitApply(lease) | Event::Apply(lease))) => set(&mut records, &lease, Instant::now(), Timestamp::now()),
                    Some(Ok(Event::Delete(lease))) => drop(records.remove(&lease.name_any())),
                    Some(Ok(Event::InitDone)) => listed = true,
                    Some(Err(error)) => {
                        tracing::warn!(error = words(&error), "the Leases in the operator's namespace cannot be watched");
                        // Not being allowed to look must not stop the operator.
                        listed = true;
                    }
                    None => return std::future::pending().await,
                },
                () = expired => {}
            }
            if listed {
                self.publish(namespace, &records);
            }
        }
    }

    fn publish(&self, namespace: &str, records: &HashMap<String, Record>) {
        let now = Instant::now();
        let valid = records.iter().filter(|(_, record)| record.until > now).min_by(|a, b| a.0.cmp(b.0));
        self.0.send_if_modified(|known| {
            let since = if let State::Running(running) = known { running.since } else { now };
            let running = |(name, record): (&String, &Record)| Running {
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

/// Remembers `lease` if it is one of the Go operator's. What was renewed counts from when it was seen here, so that clocks need not agree.
fn set(records: &mut HashMap<String, Record>, lease: &Lease, now: Instant, clock: Timestamp) {
    let name = lease.name_any();
    let Some(spec) = lease.spec.as_ref().filter(|_| is_its(&name)) else { return };
    let holder = spec.holder_identity.clone().unwrap_or_default();
    if holder.is_empty() {
        records.remove(&name);
        return;
    }
    let renewed = spec.renew_time.as_ref().map(|time| time.0);
    let valid = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok()).map_or(VALID, Duration::from_secs);
    let until = match records.get(&name) {
        Some(before) if before.renewed == renewed => before.until,
        Some(_) => now + valid,
        // Seen for the first time: it may be long abandoned.
        None => {
            let age =
                renewed.map_or(valid, |renewed| Duration::try_from(clock.duration_since(renewed)).unwrap_or_default());
            now + valid.saturating_sub(age)
        }
    };
    records.insert(name, Record { holder, renewed, until });
}

/// Whether a Lease of this name is one of the Go operator's.
fn is_its(name: &str) -> bool {
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
    fn leases_of_the_go_operator_are_recognised() {
        assert!(is_its(NAME));
        for other in [
            "knative-operator",
            "knative-operator-0-of-4",
            "knative-operator.x",
            "other.x.00-of-01",
            "knative-operator.x.a-of-b",
        ] {
            assert!(!is_its(other), "{other}");
        }
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
        // An hour old at first sight.
        assert_eq!(until(lease(NAME, "pod", "2026-01-01T11:00:00Z"), 0), Some(0));
        // Renewed while this process looks, whatever the other clock says.
        assert_eq!(until(lease(NAME, "pod", "2026-01-01T11:00:10Z"), 10), Some(70));
        assert_eq!(until(lease(NAME, "pod", "2026-01-01T11:00:10Z"), 20), Some(70));
        assert_eq!(until(lease(NAME, "", "2026-01-01T11:00:10Z"), 30), None);
    }
}
