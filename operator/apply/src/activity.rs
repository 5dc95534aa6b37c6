//! What the watches of an installation do, for people who look for a fault.

use std::sync::{Arc, Mutex, PoisonError};

use knative_operator_runtime::watch_activity::{WatchActivity, WatchReport};

use super::watch::WatchTarget;

/// What a watch does.
#[derive(Clone, Debug)]
pub struct WatchState {
    /// What it selects.
    pub target: Arc<WatchTarget>,
    /// Number of objects that are recorded from it.
    pub objects: usize,
    /// What it did until now.
    pub report: WatchReport,
}

/// The watches of an installation.
#[derive(Debug, Default)]
pub struct Watches(Mutex<Vec<(Arc<WatchTarget>, Arc<WatchActivity>)>>);

impl Watches {
    /// Adds the watch of `target`, which records what it does in the result.
    pub fn add(&self, target: &Arc<WatchTarget>) -> Arc<WatchActivity> {
        let activity = Arc::<WatchActivity>::default();
        let mut watches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        watches.push((Arc::clone(target), Arc::clone(&activity)));
        activity
    }

    /// What each of them does; `count` counts the objects of a watch.
    pub fn states(&self, count: impl Fn(&WatchTarget) -> usize) -> Vec<WatchState> {
        let watches = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state = |(target, activity): &(Arc<WatchTarget>, Arc<WatchActivity>)| WatchState {
            target: Arc::clone(target),
            objects: count(target),
            report: activity.report(),
        };
        watches.iter().map(state).collect()
    }
}
