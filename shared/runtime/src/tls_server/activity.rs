//! What a connection does, as far as limits on time depend on it. Pure: times are milliseconds of
//! the caller's clock.

use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

/// Time limit of the handshake. An API server gives up after 10 s, and must always do so first: it
/// goes on with the handshake when it needs the connection no more, and keeps it for later. A
/// review that it sends at the moment in which the webhook closes that connection fails.
const HANDSHAKE_TIMEOUT: u64 = 15_000;
/// Time limit of the headers of each request from their first byte on.
const HEADERS_TIMEOUT: u64 = 5_000;
/// Time limit of idle connections, also of those without any request: an API server (Go) opens a
/// connection when all others are busy, and keeps it for later if another one was free sooner. It
/// closes idle connections after 90 s, and must always do so first: a review that is sent at the
/// moment in which the webhook closes its connection fails.
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
    /// Whether the handshake is done.
    is_established: AtomicBool,
}

/// Why a connection is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Overdue {
    /// The peer has not ended the handshake, or sent its headers, in time.
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
            is_established: AtomicBool::new(false),
        }
    }

    /// Records that the handshake is done, or that there is none.
    pub(super) fn establish(&self, now: u64) {
        self.since.store(now, Relaxed);
        self.is_established.store(true, Relaxed);
    }

    /// Records that bytes arrived.
    pub(super) fn receive(&self, now: impl FnOnce() -> u64) {
        if self.requests.load(Relaxed) == 0 && self.headers_since.load(Relaxed) == NONE {
            self.headers_since.store(now(), Relaxed);
        }
    }

    /// Records that the headers of a request are complete.
    pub(super) fn begin(&self, now: u64) {
        self.is_established.store(true, Relaxed);
        if self.requests.fetch_add(1, Relaxed) == 0 {
            self.since.store(now, Relaxed);
        }
        self.headers_since.store(NONE, Relaxed);
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
        let is_late = !self.is_established.load(Relaxed) && age(&self.since) > HANDSHAKE_TIMEOUT;
        if is_late || age(&self.headers_since) > HEADERS_TIMEOUT {
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

    fn established() -> Activity {
        let connection = Activity::new(0);
        connection.establish(0);
        connection
    }

    #[test]
    fn handshake_has_a_time_limit_and_unused_connections_are_idle_ones() {
        let connection = Activity::new(0);
        assert_eq!((connection.overdue(15_000), connection.overdue(15_001)), (None, Some(Overdue::Slow)));
        // `TLSHandshakeTimeout` of client-go.
        const { assert!(HANDSHAKE_TIMEOUT > 10_000) }
        connection.establish(4_000);
        assert_eq!((connection.overdue(124_000), connection.overdue(124_001)), (None, Some(Overdue::Idle)));
    }

    #[test]
    fn headers_have_a_time_limit_in_total() {
        let connection = established();
        connection.receive(|| 1_000);
        assert_eq!(connection.overdue(6_000), None);
        // One byte at a time doesn't help.
        connection.receive(|| 6_000);
        assert_eq!(connection.overdue(6_001), Some(Overdue::Slow));

        let connection = established();
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
        let connection = established();
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
        let connection = established();
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
