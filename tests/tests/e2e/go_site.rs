//! A hub with the real Go operator, for tests of what it does: its reconciles from its log, and its
//! writes from the audit log.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use knative_operator_tests::Result;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::go_operator::{GoOperator, USER};
use knative_operator_tests::measure::{Audit, Request};
use knative_operator_tests::skip::{GO_OPERATOR, skip};
use serde_json::Value;

use crate::support::{apply, namespace};

/// Time limit of a reconcile.
const RECONCILE: Duration = Duration::from_secs(90);

/// A hub with the Go operator.
pub struct Site {
    pub hub: Cluster,
    pub go: GoOperator,
    audit: Audit,
    requests: Vec<Request>,
    touches: usize,
}

/// Writes by resource: verb and name.
pub type Writes = BTreeMap<String, Vec<String>>;

/// Whether this run has the tests of `make test-go-suite`. It says so if it has not.
pub fn asked_for() -> bool {
    let asked = std::env::var_os("GO_SUITE").is_some();
    if !asked {
        skip(GO_OPERATOR, "GO_SUITE is not set (make test-go-suite)");
    }
    asked
}

/// Prints what a row of the document has seen.
pub fn row(number: u8, seen: &str) {
    eprintln!("defect {number}: {seen}");
}

/// When a reconcile started and ended.
pub type Span = (Timestamp, Timestamp);

/// What the Go operator logs about one reconcile.
#[derive(Default)]
struct Logged {
    start: Option<Timestamp>,
    end: Option<Timestamp>,
}

/// The reconciles of `resource` in `log` that ended.
fn reconciles(log: &str, resource: &Value) -> Vec<Span> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let key = format!("{}/{}", text(&resource["metadata"]["namespace"]), text(&resource["metadata"]["name"]));
    let kind = format!("operator.knative.dev.{}", text(&resource["kind"]));
    let mut all: BTreeMap<String, Logged> = BTreeMap::new();
    let mut order = Vec::new();
    for line in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        if line["knative.dev/key"] != key.as_str() || line["knative.dev/kind"] != kind.as_str() {
            continue;
        }
        let (trace, message) = (text(&line["knative.dev/traceid"]), text(&line["message"]));
        let time = text(&line["timestamp"]).parse::<Timestamp>().ok();
        let entry = all.entry(trace.clone()).or_default();
        if entry.start.is_none() {
            entry.start = time;
            order.push(trace);
        }
        if message == "Reconcile succeeded" || message == "Reconcile error" {
            entry.end = time;
        }
    }
    order.iter().filter_map(|trace| Some((all[trace].start?, all[trace].end?))).collect()
}

impl Site {
    /// Installs it on `hub`.
    pub async fn start(hub: Cluster, spokes: &[&Cluster]) -> Result<Self> {
        Self::start_with(hub, spokes, None).await
    }

    /// Installs it on `hub`, with Knative's releases in `kodata`.
    pub async fn start_with(hub: Cluster, spokes: &[&Cluster], kodata: Option<&Path>) -> Result<Self> {
        let mut go = GoOperator::install(&hub, spokes).await?;
        if let Some(kodata) = kodata {
            go.stop()?;
            go.use_releases(kodata);
            go.start(&hub).await?;
        }
        let audit = Audit::of(&hub, USER)?;
        Ok(Self { hub, go, audit, requests: Vec::new(), touches: 0 })
    }

    /// Applies `resource`, in its namespace.
    pub async fn apply(&self, resource: &Value) -> Result<()> {
        namespace(&self.hub, resource["metadata"]["namespace"].as_str().unwrap_or_default()).await?;
        apply(&self.hub, resource).await
    }

    /// The reconciles of `resource` so far.
    pub fn reconciles(&self, resource: &Value) -> Vec<Span> {
        reconciles(&self.go.log(), resource)
    }

    /// Forces a reconcile of `resource`, and waits until it ends.
    pub async fn touch(&mut self, resource: &Value) -> Result<Span> {
        self.touches += 1;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&resource["kind"]), text(&resource["metadata"]["name"]));
        let (place, mark) = (text(&resource["metadata"]["namespace"]), format!("example.com/touched={}", self.touches));
        let since = Timestamp::now();
        self.hub.kubectl(&["annotate", &kind, &name, "-n", &place, &mark, "--overwrite"], "").await?;
        self.reconciled(resource, since).await
    }

    /// Waits until it has been idle for ten seconds: until it logs nothing.
    pub async fn idle(&self) -> Result<()> {
        let (started, mut since, mut length) = (Instant::now(), Instant::now(), 0);
        while since.elapsed() < Duration::from_secs(10) {
            if self.go.log().len() != length {
                (since, length) = (Instant::now(), self.go.log().len());
            }
            if started.elapsed() > RECONCILE {
                return Err(format!("it is not idle after {RECONCILE:?}").into());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }

    /// Waits until a reconcile of `resource` that started after `since` has ended.
    pub async fn reconciled(&mut self, resource: &Value, since: Timestamp) -> Result<Span> {
        let started = Instant::now();
        // Polled: nothing else reports the end of a reconcile.
        loop {
            let found = self.reconciles(resource).into_iter().find(|(start, _)| *start >= since);
            match found {
                Some(found) => return Ok(found),
                None if started.elapsed() > RECONCILE => {
                    return Err(format!("no reconcile in {RECONCILE:?}:\n{}", self.go.log()).into());
                }
                None => tokio::time::sleep(Duration::from_millis(100)).await,
            }
        }
    }

    /// Its writes from `start` to `end`, by resource; without Leases, events and its own resources.
    pub async fn writes(&mut self, (start, end): Span) -> Result<Writes> {
        self.requests.extend(self.audit.take_all(&self.hub.client()).await?);
        let mut all = Writes::new();
        for request in self.requests.iter().filter(|request| request.writes() && request.code < 400) {
            let within = request.times.0.parse::<Timestamp>().is_ok_and(|time| start <= time && time <= end);
            let (resource, name) = request.target.split_once('/').unwrap_or((&request.target, ""));
            let other = ["leases", "events", "knative"].iter().any(|prefix| resource.starts_with(prefix));
            if within && !other {
                all.entry(resource.to_owned()).or_default().push(format!("{} {name}", request.verb));
            }
        }
        Ok(all)
    }

    /// Patches an object as `manager`. `kubectl replace` would write what was applied last.
    pub async fn patch(&self, place: &str, [kind, name]: [&str; 2], manager: &str, patch: &Value) -> Result<()> {
        let (manager, patch) = (format!("--field-manager={manager}"), patch.to_string());
        self.hub.kubectl(&["patch", kind, name, "-n", place, "--type=json", "-p", &patch, &manager], "").await.map(drop)
    }

    /// The status of `resource`.
    pub async fn status(&self, resource: &Value) -> Result<Value> {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (kind, name) = (text(&resource["kind"]), text(&resource["metadata"]["name"]));
        let place = text(&resource["metadata"]["namespace"]);
        Ok(self.get(&place, [&kind, &name]).await?["status"].clone())
    }

    /// Applies `resource` and waits until a reconcile after that has ended.
    pub async fn change(&mut self, resource: &Value) -> Result<Span> {
        let since = Timestamp::now();
        self.apply(resource).await?;
        self.reconciled(resource, since).await
    }

    /// One object as JSON; null if it does not exist.
    pub async fn get(&self, place: &str, [kind, name]: [&str; 2]) -> Result<Value> {
        get(&self.hub, place, [kind, name]).await
    }
}

/// One object of `cluster` as JSON; null if it does not exist.
pub async fn get(cluster: &Cluster, place: &str, [kind, name]: [&str; 2]) -> Result<Value> {
    Ok(cluster.object(kind, place, name).find().await?.unwrap_or_default())
}
