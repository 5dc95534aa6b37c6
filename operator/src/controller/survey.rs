//! What the watches tell of an installation: what works, what is waited for, what won't come. Pure but for the time.

use jiff::Timestamp;

use super::verdict::Installation;
use crate::apply::differ::Sight;
use crate::apply::seen::Seen;
use crate::health::{Health, Wait};
use crate::plan::{Item, Phase, Plan};

/// The workloads of `plan` that aren't available, and why, as far as anybody has looked.
pub fn unavailable(plan: &Plan, seen: &Seen) -> Vec<(String, Wait)> {
    let why = |item: &Item| match (seen.health(&item.id), seen.sight(&item.id)) {
        (Some(Health::Ready), _) | (None, Sight::Unknown) => None,
        (Some(Health::Waiting(wait)), _) => Some(wait),
        (Some(Health::Broken(why)), _) => Some(why.as_str().into()),
        (None, Sight::Present { .. }) => Some("its status is not known yet".into()),
        (None, _) => Some("it isn't there".into()),
    };
    workloads(plan).filter_map(|item| Some((item.id.name.clone(), why(item)?))).collect()
}

/// Adds to `found` what the watches tell of everything but Jobs.
pub fn add(found: &mut Installation, plan: &Plan, seen: &Seen, now: Timestamp) {
    found.unavailable = unavailable(plan, seen);
    found.seen = workloads(plan).chain(plan.phase(Phase::Definitions)).all(|item| seen.sight(&item.id) != Sight::Unknown);
    for item in plan.phase(Phase::Definitions) {
        match seen.health(&item.id) {
            Some(Health::Broken(why)) => found.broken.push(format!("{} is not established: {why}", item.id)),
            Some(Health::Waiting(wait)) if late(&wait, now) => found.broken.push(format!("{}: {wait}", item.id)),
            Some(Health::Waiting(wait)) => found.pending.push(format!("{} ({wait})", item.id)),
            Some(Health::Ready) | None => {}
        }
    }
    for (kind, why) in seen.blind() {
        found.broken.push(format!("{kind} can't be watched, so nobody knows what becomes of them: {why}"));
    }
}

/// Whether `wait` is past its deadline.
fn late(wait: &Wait, now: Timestamp) -> bool {
    wait.deadline.as_ref().is_some_and(|deadline| deadline.parse::<Timestamp>().is_ok_and(|deadline| deadline < now))
}

fn workloads(plan: &Plan) -> impl Iterator<Item = &Item> {
    plan.items.iter().filter(|i| i.id.group == "apps" && matches!(i.id.kind.as_str(), "Deployment" | "StatefulSet"))
}
