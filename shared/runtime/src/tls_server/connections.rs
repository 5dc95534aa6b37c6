//! The open connections, with limits on their number, on the memory of their requests, and on time.
//! If a limit on what they share is reached, the peer that uses most gives way.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::activity::{Activity, Overdue};
use super::fairness::{self, Usage};

/// How often limits on time are checked.
const CHECKS: Duration = Duration::from_secs(1);

/// Limits of a server.
#[derive(Clone, Copy, Debug)]
pub(super) struct Limits {
    /// Number of connections.
    pub(super) connections: usize,
    /// Memory of all requests in progress, in bytes.
    pub(super) memory: usize,
}

/// The open connections.
#[derive(Debug)]
pub(super) struct Connections {
    limits: Limits,
    started: Instant,
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<Connection>>>,
    /// Memory of all requests in progress, in bytes, also of connections that are being cut.
    memory: AtomicUsize,
    /// Number of connections that gave way since the last report.
    cut: AtomicUsize,
    /// Asks all connections to end.
    finish: CancellationToken,
}

/// A connection.
#[derive(Debug)]
pub(super) struct Connection {
    id: u64,
    peer: IpAddr,
    all: Arc<Connections>,
    activity: Activity,
    memory: AtomicUsize,
    cut: CancellationToken,
    finish: CancellationToken,
}

/// The place of a connection among the open ones, until dropped.
#[derive(Debug)]
pub(super) struct Slot(Arc<Connection>);

/// A request in progress, until dropped.
#[derive(Debug)]
pub(super) struct Busy(Arc<Connection>);

impl Connections {
    /// No connections yet.
    pub(super) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            started: Instant::now(),
            next: AtomicU64::new(0),
            open: Mutex::default(),
            memory: AtomicUsize::new(0),
            cut: AtomicUsize::new(0),
            finish: CancellationToken::new(),
        })
    }

    /// A place for a new connection of `peer`. At the limit, another connection gives way.
    pub(super) fn admit(self: &Arc<Self>, peer: IpAddr) -> Slot {
        let connection = Arc::new(Connection {
            id: self.next.fetch_add(1, Relaxed),
            peer: peer.to_canonical(),
            all: Arc::clone(self),
            activity: Activity::new(self.now()),
            memory: AtomicUsize::new(0),
            cut: CancellationToken::new(),
            finish: self.finish.child_token(),
        });
        let mut open = self.open();
        open.insert(connection.id, Arc::clone(&connection));
        if open.len() > self.limits.connections {
            self.cut_one(&mut open, Some(connection.id));
        }
        Slot(connection)
    }

    /// Cuts the connection that gives way, if there is one.
    pub(super) fn shed(&self) {
        self.cut_one(&mut self.open(), None);
    }

    /// Asks all connections to end once their requests are answered.
    pub(super) fn finish(&self) {
        self.finish.cancel();
    }

    /// Enforces the limits on time until dropped.
    pub(super) async fn enforce_time_limits(&self) {
        let mut checks = tokio::time::interval(CHECKS);
        checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            checks.tick().await;
            self.end_overdue(self.now());
            let connections = self.cut.swap(0, Relaxed);
            if connections > 0 {
                tracing::warn!(connections, "cut connections of the peers that used most, since a limit was reached");
            }
        }
    }

    /// Ends the connections that are slow or idle at `now`.
    fn end_overdue(&self, now: u64) {
        for connection in self.open().values() {
            match connection.activity.overdue(now) {
                Some(Overdue::Slow) => connection.cut.cancel(),
                Some(Overdue::Idle) => connection.finish.cancel(),
                None => {}
            }
        }
    }

    /// Cuts a connection of the peer with the most connections, but not `newest`.
    fn cut_one(&self, open: &mut HashMap<u64, Arc<Connection>>, newest: Option<u64>) {
        let usage = |connection: &Arc<Connection>| {
            let rank = if Some(connection.id) == newest { u64::MAX } else { connection.activity.rank() };
            Usage { id: connection.id, peer: connection.peer, amount: 1, rank }
        };
        let all: Vec<Usage> = open.values().map(usage).collect();
        if let Some(id) = fairness::largest(&all) {
            self.cut(open, id);
        }
    }

    /// Makes room for the memory that connection `id` has just taken: cuts connections that use
    /// more. Returns whether it fits.
    fn make_room(&self, id: u64) -> bool {
        let mut open = self.open();
        let mut all = usages(&open, |connection| connection.memory.load(Relaxed));
        let mut total: usize = all.iter().map(|usage| usage.amount).sum();
        while total > self.limits.memory {
            let largest = fairness::largest(&all).filter(|largest| *largest != id);
            let Some(at) = all.iter().position(|usage| Some(usage.id) == largest) else { return false };
            let usage = all.swap_remove(at);
            total -= usage.amount;
            self.cut(&mut open, usage.id);
        }
        // What was cut may take a moment to free its memory.
        open.contains_key(&id)
    }

    fn cut(&self, open: &mut HashMap<u64, Arc<Connection>>, id: u64) {
        if let Some(connection) = open.remove(&id) {
            connection.cut.cancel();
            self.cut.fetch_add(1, Relaxed);
        }
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Milliseconds since the start.
    fn now(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// What the connections use, by `amount`.
fn usages(open: &HashMap<u64, Arc<Connection>>, amount: impl Fn(&Connection) -> usize) -> Vec<Usage> {
    let usage = |connection: &Arc<Connection>| Usage {
        id: connection.id,
        peer: connection.peer,
        amount: amount(connection),
        rank: connection.activity.rank(),
    };
    open.values().map(usage).filter(|usage| usage.amount > 0).collect()
}

impl Connection {
    /// Records that the handshake is done, or that there is none.
    pub(super) fn establish(&self) {
        self.activity.establish(self.all.now());
    }

    /// Records that bytes arrived.
    pub(super) fn receive(&self) {
        self.activity.receive(|| self.all.now());
    }

    /// Records that a request is in progress.
    pub(super) fn begin(self: &Arc<Self>) -> Busy {
        self.activity.begin(self.all.now());
        Busy(Arc::clone(self))
    }

    /// Takes `bytes` of memory, also if they don't fit. Returns whether they do.
    pub(super) fn take_memory(&self, bytes: usize) -> bool {
        self.memory.fetch_add(bytes, Relaxed);
        let total = self.all.memory.fetch_add(bytes, Relaxed) + bytes;
        total <= self.all.limits.memory || self.all.make_room(self.id)
    }

    /// Gives `bytes` of memory back.
    pub(super) fn return_memory(&self, bytes: usize) {
        self.memory.fetch_sub(bytes, Relaxed);
        self.all.memory.fetch_sub(bytes, Relaxed);
    }

    /// Whether no peer has more requests in progress than the peer of this connection.
    pub(super) fn has_most_requests(&self) -> bool {
        let all = usages(&self.all.open(), |connection| connection.activity.requests());
        fairness::uses_most(&all, self.peer)
    }

    /// Waits until the connection must end immediately.
    pub(super) async fn until_cut(&self) {
        self.cut.cancelled().await;
    }

    /// Waits until the connection should end once its requests are answered.
    pub(super) async fn until_finish(&self) {
        self.finish.cancelled().await;
    }
}

impl Slot {
    /// The connection.
    pub(super) fn connection(&self) -> &Arc<Connection> {
        &self.0
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.all.open().remove(&self.0.id);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.activity.end(self.0.all.now());
    }
}

#[cfg(test)]
mod tests;
