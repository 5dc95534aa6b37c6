//! The clusters whose gates are measured, and those at which the operator has not looked.

use super::decision::Input;
use super::gates::GATE_FAILED;
use super::member::{Contents, Member};
use super::outcome::Outcome;
use super::progress::Progress;
use super::timer::Phase;

impl Member {
    /// Whether a failure of its gates is recorded in the rollout since `generation`. In another
    /// one, or if another try was asked for one of its resources, they are measured again.
    pub fn has_failed_gates(&self, generation: i64) -> bool {
        let recorded = || self.applied().filter_map(|applied| applied.outcome.as_ref());
        !recorded().any(Outcome::is_retried)
            && recorded().any(|outcome| outcome.failure_since(generation) == Some(GATE_FAILED))
    }
}

impl<C: Contents> Input<'_, C> {
    /// Whether the gates of `member` with `progress` are measured: everything else about its update
    /// is done, or it may have recovered since the rollout is complete. If it was not Ready before
    /// the update, a gate that failed is measured again later.
    pub fn measures_gates(&self, member: &Member, progress: &Progress) -> bool {
        let is_open = match progress {
            Progress::Updating(_) | Progress::Deferred(_) => true,
            Progress::Failed(..) => {
                !self.is_rolling_out() && !progress.is_refused() && !member.has_failed_gates(self.generation)
            }
            _ => false,
        };
        let is_ready = || matches!(member.phase(self.update, self.contents), Phase::Ready(_));
        let min_ready = self.stages.settings()[member.stage].min_ready;
        is_open && member.gone.is_none() && member.elapsed.in_phase >= min_ready && is_ready()
    }

    /// Whether the operator has not looked at `member` since the write for as long as an update may
    /// take.
    pub fn is_unobserved(&self, member: &Member) -> bool {
        let deadline = self.stages.settings()[member.stage].deadline;
        member.elapsed.in_phase >= deadline && member.phase(self.update, self.contents) == Phase::Unobserved
    }
}
