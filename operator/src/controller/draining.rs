//! What a deletion waits for once only Pods are left: they drain, for at most their grace period.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use knative_operator_runtime::backoff::Backoff;
use kube::Client;

use knative_operator_apply::pods;
use knative_operator_objects::{ObjectId, drain};

/// Time after which the operator looks at the Pods.
const DELAY: Duration = Duration::from_secs(2);
/// Interval of looks while the same objects are left: at first, doubled each time, and at most.
const INTERVAL: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_secs(60));

/// The Pods that a deletion waits for.
#[derive(Default)]
pub struct Draining {
    /// The workloads that were left at the last look or before the first one.
    of: BTreeSet<ObjectId>,
    due: Option<Instant>,
    looks: u32,
    text: Option<String>,
}

impl Draining {
    /// Records that `left` is left at the time `now`; returns whether to look at its Pods.
    fn is_due(&mut self, left: &[ObjectId], now: Instant) -> bool {
        let is_same = self.of.len() == left.len() && left.iter().all(|id| self.of.contains(id));
        if self.of.is_empty() || !is_same {
            (self.of, self.looks) = (left.iter().cloned().collect(), 0);
            self.due = Some(self.due.map_or(now + DELAY, |due| due.min(now + DELAY)));
        }
        if self.due.is_some_and(|due| due > now) {
            return false;
        }
        self.looks += 1;
        self.due = Some(now + INTERVAL.exact(self.looks));
        true
    }
}

/// Until when the Pods of `left` drain, if only workloads are left; `None` if that is unknown.
pub async fn describe(state: &mut Draining, client: &Client, left: &[ObjectId]) -> Option<String> {
    let namespace = &left.first()?.namespace;
    let are_workloads = |id: &ObjectId| matches!(id.group.as_str(), "apps" | "batch") && id.namespace == *namespace;
    if !left.iter().all(are_workloads) {
        *state = Draining::default();
        return None;
    }
    if state.is_due(left, Instant::now())
        && let Ok(listed) = pods::list(client, namespace).await
    {
        state.text = drain::describe(&listed.items, left, Timestamp::now());
    }
    state.text.clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_listed_with_back_off() {
        let (mut draining, start) = (Draining::default(), Instant::now());
        let left = |count: usize| {
            ["a", "b", "c"][..count]
                .iter()
                .map(|name| ObjectId::new("apps", "Deployment", "n", name))
                .collect::<Vec<_>>()
        };
        let mut is_due =
            |count: usize, seconds: u64| draining.is_due(&left(count), start + Duration::from_secs(seconds));
        let times: Vec<u64> = (0..120).filter(|second| is_due(3, *second)).collect();
        assert_eq!(times, [2, 12, 32, 72]);
        let times: Vec<u64> = (120..140).filter(|second| is_due(2, *second)).collect();
        assert_eq!(times, [122, 132]);
        // Others that are as many.
        let jobs = [ObjectId::new("batch", "Job", "n", "a"), ObjectId::new("batch", "Job", "n", "b")];
        let times = |left: &[ObjectId], draining: &mut Draining| -> Vec<u64> {
            (140..150).filter(|second| draining.is_due(left, start + Duration::from_secs(*second))).collect()
        };
        assert_eq!(times(&jobs, &mut draining), [142]);
        let [first, second] = jobs;
        assert_eq!(times(&[second, first], &mut draining), [] as [u64; 0]);
    }
}
