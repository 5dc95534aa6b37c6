//! Which approvals count for a fleet. An approval is for one life of the fleet (its uid), for what
//! is rolled out and where (the digest), and for one rollout of it: the status has the generation
//! in which the digest was new, and approvals of earlier generations don't count.

use std::cmp::Reverse;
use std::collections::HashMap;

use jiff::Timestamp;
use knative_operator_shared::api::KnativeFleetStatus;
use knative_operator_shared::api::fleet::KnativeFleetApprovalSpec;

/// The approved revisions and stages, with the name of the user who approved each; an earlier
/// version recorded none.
pub type Approved = HashMap<(String, String), String>;

/// A generation before all others.
const BEFORE_ALL: i64 = 0;

/// A stored approval.
#[derive(Clone, Debug, PartialEq)]
pub struct Approval {
    /// Its spec.
    pub spec: KnativeFleetApprovalSpec,
    /// Time of its creation.
    pub created: Option<Timestamp>,
}

/// What a fleet rolls out.
#[derive(Clone, Copy, Debug)]
pub struct Rollout<'a> {
    /// Name of the fleet.
    pub fleet: &'a str,
    /// Its uid.
    pub uid: &'a str,
    /// Time of its creation.
    pub created: Option<Timestamp>,
    /// Digest of what is rolled out, and where.
    pub digest: &'a str,
    /// The generation in which the digest was new.
    pub since: i64,
}

/// The generation in which `digest` was new, which a fleet with revision `update` has in
/// `generation`, after the status `old`. A rollout that an earlier version started is from before
/// all generations.
pub fn since(old: &KnativeFleetStatus, update: &str, digest: &str, generation: i64) -> i64 {
    match &old.rollout_digest {
        Some(known) if known == digest => old.rollout_generation.unwrap_or(generation),
        None if old.update_revision.as_deref() == Some(update) => BEFORE_ALL,
        _ => generation,
    }
}

/// The generation with which failures are recorded in a rollout since a generation of the fleet. A
/// change that rolls out nothing else, such as the end of a pause, repairs none. 0 is that of a
/// failure that is observed again.
pub fn of_failures(since: i64) -> i64 {
    since.max(BEFORE_ALL + 1)
}

impl Rollout<'_> {
    /// Whether `approval` is for this rollout. One that an earlier version stored counts only for a
    /// rollout that was in progress then: it names the revision, and is younger than the fleet.
    fn has(&self, approval: &Approval) -> bool {
        let KnativeFleetApprovalSpec { fleet, fleet_uid, fleet_generation, digest, .. } = &approval.spec;
        fleet == self.fleet
            && match (fleet_uid, fleet_generation, digest) {
                (None, None, None) => self.since == BEFORE_ALL && approval.created >= self.created,
                (Some(uid), Some(generation), Some(digest)) => {
                    uid == self.uid && digest == self.digest && *generation >= self.since
                }
                _ => false,
            }
    }

    /// The approved revisions and stages.
    pub fn approved<'s>(&self, approvals: impl Iterator<Item = &'s Approval>) -> Approved {
        let mut own: Vec<_> = approvals.filter(|approval| self.has(approval)).collect();
        // The first one is the one that let it start.
        own.sort_by_key(|approval| Reverse(approval.created));
        let of = |Approval { spec, .. }: &Approval| {
            ((spec.revision.clone(), spec.stage.clone()), spec.username.clone().unwrap_or_default())
        };
        own.into_iter().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn time(text: &str) -> Option<Timestamp> {
        Some(format!("2026-01-01T{text}Z").parse().unwrap())
    }

    fn rollout(since: i64) -> Rollout<'static> {
        Rollout { fleet: "prod", uid: "1", created: time("12:00:00"), digest: "sha256:a", since }
    }

    fn approval(patch: &Value) -> Approval {
        let mut spec = json!({"fleet": "prod", "revision": "prod-1", "stage": "rest", "username": "jane",
            "fleetUID": "1", "fleetGeneration": 3, "digest": "sha256:a"});
        json_patch::merge(&mut spec, patch);
        Approval { spec: serde_json::from_value(spec).unwrap(), created: time("13:00:00") }
    }

    fn counts(since: i64, approval: &Approval) -> bool {
        rollout(since).approved([approval].into_iter()).contains_key(&("prod-1".to_owned(), "rest".to_owned()))
    }

    #[test]
    fn who_approved_first_is_known() {
        let by = |name: &str, at| Approval { created: time(at), ..approval(&json!({"username": name})) };
        let all = [by("ann", "14:00:00"), by("jane", "13:00:00"), by("kim", "15:00:00")];
        let approved = rollout(3).approved(all.iter());
        assert_eq!(approved.get(&("prod-1".to_owned(), "rest".to_owned())).map(String::as_str), Some("jane"));
    }

    #[test]
    fn approval_is_for_one_fleet_one_content_and_one_rollout() {
        for (patch, since, expected) in [
            (json!({}), 3, true),
            // In a later generation of the same rollout, such as after a pause.
            (json!({"fleetGeneration": 7}), 3, true),
            (json!({}), 0, true),
            // The same content is rolled out again.
            (json!({}), 4, false),
            // A fleet that was deleted and created again.
            (json!({"fleetUID": "2"}), 3, false),
            (json!({"fleet": "test"}), 3, false),
            // Templates, overrides, placement or stages changed.
            (json!({"digest": "sha256:b"}), 3, false),
            (json!({"revision": "prod-2"}), 3, false),
            (json!({"stage": "canary"}), 3, false),
            // A part is missing.
            (json!({"digest": null}), 0, false),
            (json!({"fleetUID": null}), 0, false),
            (json!({"fleetGeneration": null}), 0, false),
        ] {
            assert_eq!(counts(since, &approval(&patch)), expected, "{patch} since {since}");
        }
    }

    #[test]
    fn approval_of_an_earlier_version_counts_for_the_rollout_at_the_upgrade() {
        let earlier = approval(&json!({"fleetUID": null, "fleetGeneration": null, "digest": null}));
        assert!(counts(0, &earlier));
        assert!(!counts(1, &earlier), "a later rollout");
        assert!(counts(0, &Approval { created: time("12:00:00"), ..earlier.clone() }));
        assert!(!counts(0, &Approval { created: time("11:59:59"), ..earlier.clone() }), "of a former fleet");
        assert!(!counts(0, &Approval { created: None, ..earlier }));
    }

    #[test]
    fn failure_of_an_earlier_rollout_is_observed_again_and_none_after_a_pause() {
        let mut status = KnativeFleetStatus::default();
        let mut failures = |digest: &str, generation| {
            let since = since(&status, "prod-1", digest, generation);
            (status.rollout_digest, status.rollout_generation) = (Some(digest.to_owned()), Some(since));
            of_failures(since)
        };
        // It is paused and resumed, then something else is rolled out.
        assert_eq!((failures("a", 3), failures("a", 4), failures("a", 5), failures("b", 6)), (3, 3, 3, 6));
        // A rollout that an earlier version started has failures that are not tried again, either.
        assert_eq!(of_failures(BEFORE_ALL), 1);
    }

    #[test]
    fn rollout_starts_with_a_new_digest() {
        let status = |update: Option<&str>, digest: Option<&str>, generation: Option<i64>| KnativeFleetStatus {
            update_revision: update.map(str::to_owned),
            rollout_digest: digest.map(str::to_owned),
            rollout_generation: generation,
            ..KnativeFleetStatus::default()
        };
        for (old, expected) in [
            // A new fleet.
            (status(None, None, None), 5),
            // It goes on.
            (status(Some("prod-1"), Some("a"), Some(3)), 3),
            (status(Some("prod-1"), Some("a"), Some(0)), 0),
            // Other templates, or another place for the same.
            (status(Some("prod-2"), Some("b"), Some(3)), 5),
            (status(Some("prod-1"), Some("b"), Some(3)), 5),
            // The first pass after an upgrade.
            (status(Some("prod-1"), None, None), 0),
            (status(Some("prod-2"), None, None), 5),
        ] {
            assert_eq!(since(&old, "prod-1", "a", 5), expected, "{old:?}");
        }
    }
}
