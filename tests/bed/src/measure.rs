//! Measures a process and its requests: requests from the audit log, CPU time and memory from
//! /proc.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use base64::{Engine, prelude::BASE64_URL_SAFE_NO_PAD};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::{Api, Client};
use serde_json::Value;

use crate::Result;
use crate::cluster::Cluster;

/// Time limit until a request is in the audit log.
const LOGGED: Duration = crate::wait::LIMIT;

/// A request in the audit log.
#[derive(Clone, Debug)]
pub struct Request {
    /// `get`, `list`, `watch`, `create`, `patch`, …
    pub verb: String,
    /// Resource, with group and subresource where there are some, and name:
    /// `deployments.apps/activator`.
    pub target: String,
    /// Version of the API of the resource, such as `v1`.
    pub version: String,
    /// Whether it is a server-side apply that takes fields over.
    pub forces: bool,
    /// Status code of the response.
    pub code: i64,
    /// Times of request and response (RFC 3339).
    pub times: (String, String),
    /// The id of the user's credential, see [`credential`]; empty if it is no token.
    pub credential: String,
}

impl Request {
    /// Whether it may have changed something.
    pub fn writes(&self) -> bool {
        !matches!(self.verb.as_str(), "get" | "list" | "watch")
    }
}

/// Requests by verb.
pub fn by_verb(requests: &[Request]) -> String {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for request in requests {
        *counts.entry(&request.verb).or_default() += 1;
    }
    let counts: Vec<_> = counts.iter().map(|(verb, count)| format!("{count} {verb}")).collect();
    if counts.is_empty() { "none".to_owned() } else { counts.join(", ") }
}

/// Waits until `log`, the audit log of the cluster of `client`, has all requests that were answered
/// until now: it is written a moment after the response.
pub async fn complete(client: &Client, log: &Path) -> Result<()> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let marker = format!("marker-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    Api::<ConfigMap>::namespaced(client.clone(), "default").get_opt(&marker).await?;
    let started = Instant::now();
    // Polled: nothing reports what is logged.
    while !std::fs::read_to_string(log)?.contains(&marker) {
        if started.elapsed() > LOGGED {
            return Err(format!("{} has no {marker}", log.display()).into());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

/// Reads new entries of a cluster's audit log.
pub struct Audit {
    log: PathBuf,
    user: String,
    from: u64,
    /// Start time: earlier requests may be logged later.
    since: Timestamp,
}

impl Audit {
    /// Requests of `user` to `cluster` from now on.
    pub fn of(cluster: &Cluster, user: &str) -> Result<Self> {
        let log = cluster.dir().join("audit.log");
        let from = std::fs::metadata(&log)?.len();
        Ok(Self { log, user: user.to_owned(), from, since: Timestamp::now() })
    }

    /// Requests since the last call, once the log has all that were answered until now.
    pub async fn take_all(&mut self, client: &Client) -> Result<Vec<Request>> {
        complete(client, &self.log).await?;
        self.take()
    }

    /// Requests since the last call.
    pub fn take(&mut self) -> Result<Vec<Request>> {
        let mut file = std::fs::File::open(&self.log)?;
        file.seek(SeekFrom::Start(self.from))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.from += u64::try_from(whole)?;
        let mut known = BTreeSet::new();
        let mut requests = Vec::new();
        for line in text[..whole].lines() {
            let event: Value = serde_json::from_str(line)?;
            // A watch is logged at its start and at its end: count it once.
            let ended_watch = event["verb"] == "watch" && event["stage"] == "ResponseComplete";
            if event["user"]["username"] != self.user.as_str()
                || ended_watch
                || !known.insert(event["auditID"].to_string())
            {
                continue;
            }
            let request = request(&event);
            if request.times.0.parse::<Timestamp>().is_ok_and(|came| came < self.since) {
                continue;
            }
            requests.push(request);
        }
        Ok(requests)
    }
}

fn request(event: &Value) -> Request {
    let part = |key: &str| event["objectRef"][key].as_str().unwrap_or_default();
    let mut target = part("resource").to_owned();
    for (separator, part) in [(".", part("apiGroup")), ("/", part("name")), ("/", part("subresource"))] {
        if !part.is_empty() {
            target = format!("{target}{separator}{part}");
        }
    }
    if target.is_empty() {
        event["requestURI"].as_str().unwrap_or_default().clone_into(&mut target);
    }
    let time = |key: &str| event[key].as_str().unwrap_or_default().to_owned();
    Request {
        times: (time("requestReceivedTimestamp"), time("stageTimestamp")),
        verb: event["verb"].as_str().unwrap_or_default().to_owned(),
        version: part("apiVersion").to_owned(),
        target,
        forces: event["requestURI"].as_str().is_some_and(|uri| uri.contains("force=true")),
        code: event["responseStatus"]["code"].as_i64().unwrap_or_default(),
        credential: event["user"]["extra"]["authentication.kubernetes.io/credential-id"][0]
            .as_str()
            .unwrap_or_default()
            .to_owned(),
    }
}

/// The id of `token` in audit logs. Each token of a ServiceAccount has an id of its own.
pub fn credential(token: &str) -> Result<String> {
    let claims = token.split('.').nth(1).ok_or("a token without claims")?;
    let claims: Value = serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(claims)?)?;
    Ok(format!("JTI={}", claims["jti"].as_str().ok_or("a token without an id")?))
}

/// CPU time of process `pid`.
pub fn cpu(pid: i32) -> Result<Duration> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks: u64 =
        fields.get(11..13).ok_or("a stat without times")?.iter().map(|t| t.parse::<u64>().unwrap_or_default()).sum();
    // A tick is 10 ms on Linux.
    Ok(Duration::from_millis(ticks * 10))
}

/// Peak resident memory of process `pid` since [`forget_peak`], in KiB.
pub fn peak(pid: i32) -> Result<u64> {
    memory(pid, "VmHWM:")
}

/// Resident memory of process `pid`, in KiB.
pub fn resident(pid: i32) -> Result<u64> {
    memory(pid, "VmRSS:")
}

fn memory(pid: i32, field: &str) -> Result<u64> {
    let status =
        std::fs::read_to_string(format!("/proc/{pid}/status")).map_err(|error| format!("process {pid}: {error}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix(field)).ok_or("no such field")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Resets the peak memory of process `pid`.
pub fn forget_peak(pid: i32) -> Result<()> {
    Ok(std::fs::write(format!("/proc/{pid}/clear_refs"), "5")?)
}
