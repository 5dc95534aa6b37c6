//! What is true about a cluster of the model, beside what the operator observes of it.

use std::collections::BTreeMap;

use jiff::SignedDuration;

use super::member::{Change, Member};

/// Seconds of the deadline of all stages.
pub const DEADLINE: i64 = 100;

/// What is true about a cluster.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    /// Time of the last write.
    pub written: Option<SignedDuration>,
    /// The revision of that write.
    pub revision: String,
    /// The stages in which the updates to revisions began since the last rollout was complete.
    pub begun: BTreeMap<String, usize>,
    /// The revision of the last write of another revision than before.
    pub last: String,
    /// Whether it was Ready and reachable before the update.
    pub was_ready: bool,
    /// Since when it is Ready and reachable, without interruption and after the last write.
    pub ready: Option<SignedDuration>,
    /// Since when it is not, apart from faults of the hub.
    pub not_ready: Option<SignedDuration>,
    /// Time of the last write, until it is Ready.
    pub in_flight: Option<SignedDuration>,
    /// Longest time for which it was Ready since the update.
    pub soaked: SignedDuration,
    /// Since when it was Ready, if for the soak of the stage that it was in then.
    pub proven: Option<SignedDuration>,
    /// Whether its gates passed since the update, if they were measured.
    pub passed: Option<bool>,
    /// Whether the update made it fail.
    pub failed: bool,
    /// Time of the last write, if it was Ready before an update that another content replaced
    /// before its end.
    pub was_ready_before: Option<SignedDuration>,
    /// Whether it failed, and is observed again since a person asked for another try, or changed
    /// what is rolled out.
    pub is_forgiven: bool,
    /// The generation of the fleet in which it was applied last, if it returned from a failed
    /// update by that.
    pub returns: Option<i64>,
}

impl Truth {
    /// Records a write to `member`, which is Ready or new or is not, in a stage with its soak.
    pub fn write(
        &mut self,
        (member, is_ready): (&Member, bool),
        change: &Change,
        (stage, soak): (usize, SignedDuration),
        now: SignedDuration,
    ) {
        if let Change::Apply { revision, .. } = change {
            let named = |revision: &str| member.applied().any(|applied| applied.revision == revision);
            // What was replaced as a whole has not begun.
            self.begun.retain(|begun, _| named(begun));
            self.begun.entry(revision.clone()).or_insert(stage);
            self.last.clone_from(revision);
        }
        if let Change::Apply { revision, .. } = change
            && (*revision != self.revision || self.written.is_none())
        {
            // Of several resources that are written together, the first one.
            let before = self.was_ready_before.take().is_some() || self.is_unfinished(soak);
            self.was_ready = is_ready || before;
            (self.revision, self.soaked) = (revision.clone(), SignedDuration::ZERO);
            (self.failed, self.is_forgiven, self.proven) = (false, false, None);
            self.passed = None;
        }
        // After the end of the update, a component that is back is another one.
        let has_ended = self.is_done(soak) || self.is_forgiven;
        self.was_ready &= is_ready || !has_ended || self.written.is_none_or(|written| written == now);
        if !matches!(change, Change::Delete) {
            (self.written, self.ready, self.not_ready, self.in_flight) = (Some(now), None, Some(now), Some(now));
        }
    }

    /// Whether it was Ready for `soak` since the update, and its gates passed.
    pub fn is_done(&self, soak: SignedDuration) -> bool {
        self.soaked >= soak && self.passed == Some(true)
    }

    /// Whether an update is in progress, before which it was Ready.
    fn is_unfinished(&self, soak: SignedDuration) -> bool {
        let has_failed = self.failed || self.passed == Some(false);
        self.was_ready && !has_failed && !self.is_forgiven && !self.is_done(soak) && self.written.is_some()
    }

    /// Another process observes the cluster: times start from zero.
    pub fn restart(&mut self, now: SignedDuration) {
        self.not_ready = self.not_ready.map(|_| now);
    }

    /// Another content replaces the one that was written: the next write counts as a new one.
    pub fn supersede(&mut self, soak: SignedDuration) {
        if self.is_unfinished(soak) {
            self.was_ready_before = self.written;
        }
        (self.failed, self.passed, self.was_ready) = (false, self.passed.filter(|passed| *passed), false);
        self.revision.clear();
    }

    /// A person asks for another try, or changes what is rolled out: what failed is observed again,
    /// and counts until it is Ready for as long as an update.
    pub fn forgive(&mut self, now: SignedDuration) {
        if self.failed || self.passed == Some(false) || self.is_forgiven {
            (self.is_forgiven, self.passed) = (true, self.passed.filter(|passed| *passed));
            self.restart(now);
        }
    }
}
