//! Why a cluster is not part of the fleet any more. Pure.

/// Why a cluster is not part of the fleet any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gone {
    /// It is not selected.
    Left,
    /// Its ClusterProfile does not exist.
    Vanished,
}

impl Gone {
    /// The reason.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Left => "ClusterLeft",
            Self::Vanished => "ProfileMissing",
        }
    }

    /// What happened.
    pub fn message(self) -> &'static str {
        match self {
            Self::Left => "the cluster left the fleet during the rollout; its stage waits until it is selected again",
            Self::Vanished => "the ClusterProfile was deleted during the rollout; its stage waits until it is back",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use jiff::{SignedDuration, Timestamp};
    use knative_operator_shared::api::ClusterProfileReference;
    use knative_operator_shared::api::fleet::{RemovalPolicy, RemovalStatus};

    use crate::removal::{GRACE_PERIOD, Leaving, RemovalDecision, RemovalInput};

    /// What happens at `now` to the one of ten clusters that leaves.
    fn decide(leaving: Leaving, now: Timestamp) -> RemovalDecision {
        let cluster = ClusterProfileReference { name: "a".to_owned(), namespace: "n".to_owned() };
        let input = RemovalInput {
            leaving: &BTreeMap::from([(cluster, leaving)]),
            counting: &BTreeSet::new(),
            staying: 9,
            max_at_once: None,
            grace: GRACE_PERIOD,
            policy: RemovalPolicy::Delete,
            is_paused: false,
            record: &RemovalStatus::default(),
            elapsed: SignedDuration::ZERO,
            now,
        };
        input.decide(|_| false)
    }

    #[test]
    fn cluster_that_a_scheduler_drops_in_an_outage_stays_and_has_a_grace_period_after_it() {
        let now = Timestamp::from_second(1_000_000).unwrap();
        let observed = SignedDuration::from_hours(2);
        let since = Some(now - observed);
        let dropped = Leaving { since, observed, is_unavailable: true, is_installed: true, ..Leaving::default() };
        let decision = decide(dropped, now);
        assert!(decision.remove.is_empty() && decision.blocked.is_none(), "{decision:?}");
        assert_eq!((decision.unavailable.len(), decision.until, decision.since), (1, None, None));
        // Its record ends, since it waits: when it is available, it has left just now.
        assert!(decision.unavailable.iter().all(|cluster| decision.mark(cluster, true, since).is_none()));
        let back = Leaving { is_installed: true, ..Leaving::default() };
        let decision = decide(back.clone(), now);
        assert_eq!((decision.remove.len(), decision.since), (0, Some(now)));
        // The decision has its end, and removes it then.
        let left = Leaving { since: Some(now), ..back };
        assert_eq!(decide(left.clone(), now).until, Some(now + GRACE_PERIOD));
        let left = Leaving { observed: GRACE_PERIOD, ..left };
        assert_eq!(decide(left, now + GRACE_PERIOD).remove.len(), 1);
    }
}
