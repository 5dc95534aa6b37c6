//! Names of removals, for their approval. An approval is for the clusters that had left when it was
//! given: those that leave later need another one, and take it from none of the others.

use std::collections::BTreeSet;

use jiff::Timestamp;
use knative_operator_shared::api::ClusterProfileReference;
use knative_operator_shared::api::fleet::RemovalPolicy;
use sha2::{Digest, Sha256};

/// Length of the name of a removal, in bytes.
const NAME_DIGEST: usize = 16;
/// Maximum number of times at which others left after those of an approval that is not used yet:
/// the work for a name grows with the number of clusters.
pub const MAX_LATER: usize = 16;

/// Clusters that leave, at recorded times.
#[derive(Debug)]
pub struct Named {
    /// Their times, and their lines in a name.
    lines: Vec<(Timestamp, String)>,
    policy: RemovalPolicy,
}

impl Named {
    /// Those of `leaving`, in their order, with a recorded time. They leave by `policy`.
    pub fn new<'c>(
        leaving: impl Iterator<Item = (&'c ClusterProfileReference, Option<Timestamp>)>,
        policy: RemovalPolicy,
    ) -> Self {
        let line = |(cluster, since): (&'c ClusterProfileReference, Option<Timestamp>)| {
            since.map(|since| (since, format!("{cluster} {since}")))
        };
        Self { lines: leaving.filter_map(line).collect(), policy }
    }

    /// Name of the removal of those that left after a time, if it is one, until another one: of
    /// these clusters, which left at these times, by this policy. If they come back and leave
    /// again, it is another removal; also if they should keep their installations first, and then
    /// lose them.
    pub fn name(&self, after: Option<Timestamp>, until: Timestamp) -> String {
        let own = self.lines.iter().filter(|(since, _)| Some(*since) > after && *since <= until);
        // A removal by the default policy has the name that earlier versions gave it.
        let policy = (self.policy == RemovalPolicy::Orphan).then_some("Orphan");
        let text = own.map(|(_, line)| line.as_str()).chain(policy).collect::<Vec<_>>().join("\n");
        Sha256::digest(text).iter().take(NAME_DIGEST).map(|byte| format!("{byte:02x}")).collect()
    }

    /// The time until which approvals name the clusters, all of them: of the first ones, then of
    /// those that left later. `is_approved` tells whether the removal with a name is approved.
    pub fn approved_until(&self, is_approved: impl Fn(&str) -> bool) -> Option<Timestamp> {
        let times: BTreeSet<Timestamp> = self.lines.iter().map(|(since, _)| *since).collect();
        let mut approved = None;
        loop {
            let later = times.iter().rev().filter(|time| Some(**time) > approved).take(MAX_LATER);
            let Some(until) = later.copied().find(|until| is_approved(&self.name(approved, *until))) else {
                return approved;
            };
            approved = Some(until);
        }
    }
}
