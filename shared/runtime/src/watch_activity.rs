//! What a watch does, for people who look for a fault.

use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

use jiff::Timestamp;
use kube::runtime::watcher::{self, Event};
use serde::Serialize;

/// What a watch does. It costs a few stores an event, and nothing in between.
#[derive(Debug, Default)]
pub struct WatchActivity {
    restarts: AtomicU32,
    renewed_at: AtomicI64,
    last_event_at: AtomicI64,
}

/// The same at one moment. Times have a precision of seconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct WatchReport {
    /// How often it began again.
    pub restarts: u32,
    /// When it began again last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewed_at: Option<String>,
    /// When it reported an object last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_event_at: Option<String>,
}

/// The time in `seconds` since 1970; `None` for zero.
fn time(seconds: &AtomicI64) -> Option<String> {
    let seconds = seconds.load(Ordering::Relaxed);
    (seconds != 0).then(|| Timestamp::from_second(seconds).ok().map(|time| time.to_string())).flatten()
}

impl WatchActivity {
    /// It begins, or begins again.
    pub fn begin(&self) {
        if self.renewed_at.swap(Timestamp::now().as_second(), Ordering::Relaxed) != 0 {
            self.restarts.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// It reports an object.
    pub fn event(&self) {
        self.last_event_at.store(Timestamp::now().as_second(), Ordering::Relaxed);
    }

    /// Records an event of a watch of kube. After an error, it goes on, or begins with a list.
    pub fn record<K>(&self, event: &watcher::Result<Event<K>>) {
        match event {
            Ok(Event::Init) => self.renewed_at.store(Timestamp::now().as_second(), Ordering::Relaxed),
            Ok(_) => self.event(),
            Err(_) => {
                self.restarts.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// What it did until now.
    pub fn report(&self) -> WatchReport {
        WatchReport {
            restarts: self.restarts.load(Ordering::Relaxed),
            renewed_at: time(&self.renewed_at),
            last_event_at: time(&self.last_event_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restarts_and_events_are_reported() {
        let (of_kube, own) = (WatchActivity::default(), WatchActivity::default());
        assert_eq!(own.report(), WatchReport::default());
        of_kube.record::<()>(&Ok(Event::Init));
        of_kube.record(&Ok(Event::InitApply(())));
        own.begin();
        own.event();
        assert_eq!([of_kube.report().restarts, own.report().restarts], [0, 0]);
        of_kube.record::<()>(&Err(watcher::Error::NoResourceVersion));
        of_kube.record::<()>(&Ok(Event::Init));
        own.begin();
        for report in [of_kube.report(), own.report()] {
            assert_eq!(report.restarts, 1);
            for time in [&report.renewed_at, &report.last_event_at] {
                let time: Timestamp = time.as_deref().unwrap().parse().unwrap();
                assert!(Timestamp::now().duration_since(time).as_secs() < 60);
            }
        }
    }
}
