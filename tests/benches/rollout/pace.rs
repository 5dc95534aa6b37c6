//! How fast a rollout is, compared with what its clusters need.

use std::collections::HashMap;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use knative_operator_tests::Result;
use knative_operator_tests::measure::Request;

/// What the operator writes: the resources of clusters, and their status.
const RESOURCES: &str = "knativeservings.operator.knative.dev/";

/// The pace of a rollout.
#[derive(Clone, Copy, Debug)]
pub struct Pace {
    /// The time of the rollout, over what the clusters need with so many at a time.
    pub over: f64,
    /// Median and 99th percentile in milliseconds of the time from the last status of a cluster to
    /// the write of the next one.
    pub next: (i128, i128),
}

impl fmt::Display for Pace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (p50, p99) = self.next;
        write!(f, "{:.2}; {p50}/{p99} ms", self.over)
    }
}

/// The updates of a fleet: when each cluster was written first, and when its status was last.
#[derive(Default)]
struct Updates<'a> {
    written: HashMap<&'a str, Timestamp>,
    ready: HashMap<&'a str, Timestamp>,
}

/// The pace of a rollout with `requests`, in which each fleet updates `places` clusters at a time;
/// `None` if no cluster waited for another one.
pub fn pace(requests: &[Request], places: usize) -> Result<Option<Pace>> {
    let mut fleets: HashMap<&str, Updates<'_>> = HashMap::new();
    for request in requests.iter().filter(|request| request.verb == "patch") {
        let Some(target) = request.target.strip_prefix(RESOURCES) else { continue };
        let (name, is_status) = target.strip_suffix("/status").map_or((target, false), |name| (name, true));
        let Some((fleet, _)) = name.rsplit_once("-spoke-") else { continue };
        let updates = fleets.entry(fleet).or_default();
        if is_status {
            updates.ready.insert(name, request.times.1.parse()?);
        } else {
            updates.written.entry(name).or_insert(request.times.0.parse()?);
        }
    }
    let (mut time, mut need, mut delays) = (0.0, 0.0, Vec::new());
    for Updates { written, ready } in fleets.values() {
        let needs = written.iter().filter_map(|(name, written)| Some(since(*written, *ready.get(name)?)));
        need += needs.map(|need| need.as_secs_f64()).sum::<f64>() / float(places);
        let (written, ready) = (sorted(written), sorted(ready));
        if let (Some(first), Some(last)) = (written.first(), ready.last()) {
            time += since(*first, *last).as_secs_f64();
        }
        let pairs = ready.iter().zip(written.iter().skip(places));
        delays.extend(pairs.map(|(ready, next)| since(*ready, *next).as_millis()));
    }
    delays.sort_unstable();
    let at = |percent: usize| delays.get(delays.len() * percent / 100).copied();
    Ok(at(50).zip(at(99)).map(|next| Pace { over: time / need, next }))
}

fn sorted(times: &HashMap<&str, Timestamp>) -> Vec<Timestamp> {
    let mut times: Vec<_> = times.values().copied().collect();
    times.sort();
    times
}

/// The time from `start` to `end`, if it is later.
fn since(start: Timestamp, end: Timestamp) -> SignedDuration {
    end.duration_since(start).max(SignedDuration::ZERO)
}

#[allow(clippy::cast_precision_loss)] // for people
fn float(count: usize) -> f64 {
    count as f64
}
