//! What a connection does, as far as limits on time depend on it. Pure: times are milliseconds of
//! the caller's clock.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// Time limit of the handshake together with the headers of the first request, and of the headers
/// of each later request.
const HEADERS_TIMEOUT: u64 = 5_000;
/// Time limit of idle connections. An API server (Go) closes idle connections after 90 s, and must
/// always do so first: a review that is sent at the moment in which the webhook closes its
/// connection fails.
const IDLE_TIMEOUT: u64 = 120_000;
/// Time for which a request in progress protects its connection from giving way to others: longer
/// than a review takes.
const REQUEST_TIME: u64 = 3_000;
/// No headers are incomplete.
const NONE: u64 = u64::MAX;

/// What a connection does.
#[derive(Debug)]
pub(super) struct Activity {
    /// Number of requests in progress.
    requests: AtomicUsize,
    /// Since when there are requests in progress, or none.
    since: AtomicU64,
    /// When the first byte of incomplete headers arrived.
    headers_since: AtomicU64,
    /// Whether there was a request.
    was_used: AtomicBool,
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// The peer has not sent its headers in time.
    Slow,
    /// There was no request for long.
    Idle,
}

impl Activity {
    /// A connection that was accepted at `now`.
    pub(super) fn new(now: u64) -> Self {
        Self {
            requests: AtomicUsize::new(0),
            since: AtomicU64::new(now),
            headers_since: AtomicU64::new(NONE),
            was_used: AtomicBool::new(false),
        }
    }

    /// Records that bytes arrived.
    pub(super) fn receive(&self, now: impl FnOnce() -> u64) {
        if self.requests.load(Relaxed) == 0 && self.headers_since.load(Relaxed) == NONE {
            self.headers_since.store(now(), Relaxed);
        }
    }

    /// Records that the headers of a request are complete.
    pub(super) fn begin(&self, now: u64) {
        if self.requests.fetch_add(1, Relaxed) == 0 {
            self.since.store(now, Relaxed);
        }
        self.headers_since.store(NONE, Relaxed);
        self.was_used.store(true, Relaxed);
    }

    /// Records that a request is answered.
    pub(super) fn end(&self, now: u64) {
        if self.requests.fetch_sub(1, Relaxed) == 1 {
            self.since.store(now, Relaxed);
        }
    }

    /// Number of requests in progress.
    pub(super) fn requests(&self) -> usize {
        self.requests.load(Relaxed)
    }

    /// Why the connection is to be closed at `now`, if it is. Requests in progress have time limits
    /// of their own.
    pub(super) fn overdue(&self, now: u64) -> Option<Overdue> {
        if self.requests() > 0 {
            return None;
        }
        let age = |since: &AtomicU64| now.saturating_sub(since.load(Relaxed));
        let is_unused = !self.was_used.load(Relaxed) && age(&self.since) > HEADERS_TIMEOUT;
        if is_unused || age(&self.headers_since) > HEADERS_TIMEOUT {
            return Some(Overdue::Slow);
        }
        (age(&self.since) > IDLE_TIMEOUT).then_some(Overdue::Idle)
    }

    /// Of two connections of a peer, the one with the smaller value gives way: the one that is idle
    /// for longest, unless a request is in progress for too long.
    pub(super) fn rank(&self) -> u64 {
        let protection = if self.requests() > 0 { REQUEST_TIME } else { 0 };
        self.since.load(Relaxed).saturating_add(protection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_have_a_time_limit_in_total() {
        let connection = Activity::new(0);
        connection.receive(|| 1_000);
        assert_eq!(connection.overdue(5_000), None);
        // The handshake counts, and one byte at a time doesn't help.
        connection.receive(|| 5_000);
        assert_eq!(connection.overdue(5_001), Some(Overdue::Slow));

        let connection = Activity::new(0);
        connection.begin(10);
        connection.end(20);
        assert_eq!(connection.overdue(60_000), None);
        connection.receive(|| 60_000);
        connection.receive(|| 64_000);
        assert_eq!((connection.overdue(65_000), connection.overdue(65_001)), (None, Some(Overdue::Slow)));
        connection.begin(65_002);
        assert_eq!(connection.overdue(600_000), None, "a request in progress has a time limit of its own");
    }

    #[test]
    fn idle_connections_are_closed_after_those_of_an_api_server() {
        let connection = Activity::new(0);
        connection.begin(10);
        connection.begin(15);
        connection.end(20);
        assert_eq!(connection.overdue(500_000), None);
        connection.end(30);
        assert_eq!((connection.overdue(120_030), connection.overdue(120_031)), (None, Some(Overdue::Idle)));
        const { assert!(IDLE_TIMEOUT > 90_000) };
    }

    #[test]
    fn bytes_of_a_body_are_no_headers() {
        let connection = Activity::new(0);
        connection.receive(|| 0);
        connection.begin(1);
        connection.receive(|| 4_000);
        connection.end(4_001);
        assert_eq!(connection.overdue(10_000), None);
    }

    #[test]
    fn longest_idle_connection_gives_way_first() {
        let (idle, unused, busy, stuck) = (Activity::new(0), Activity::new(8_000), Activity::new(0), Activity::new(0));
        idle.begin(10);
        idle.end(7_000);
        busy.begin(7_500);
        stuck.begin(3_000);
        let order = [&stuck, &idle, &unused, &busy].map(Activity::rank);
        assert!(order.is_sorted(), "{order:?}");
    }
}
