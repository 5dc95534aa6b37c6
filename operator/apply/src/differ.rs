//! The action for one object: keep, apply or repair. Pure.

use super::inventory::Entry;
use knative_operator_objects::Digest;
use knative_operator_objects::plan::Item;

/// State of an object on the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observation {
    /// Not observed yet.
    Unknown,
    /// Absent. `was_present`: the operator has observed it before, since the process started.
    Missing {
        /// Whether it was present before.
        was_present: bool,
    },
    /// Present.
    Present {
        /// Digest of the applied object; `None` if the operator never applied it.
        digest: Option<Digest>,
        /// Whether the operator still owns every field that it applied.
        intact: bool,
    },
}

/// What to do about an object, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Do nothing: the object is as desired, as far as is known.
    Keep,
    /// Apply: the plan changed.
    Apply,
    /// Apply: the object on the cluster changed or disappeared.
    Repair,
}

/// Whether the object runs once: it is never patched, and not created again once done.
pub fn runs_once(item: &Item) -> bool {
    (item.id.group.as_str(), item.id.kind.as_str()) == ("batch", "Job")
}

/// The action for an object whose desired digest is `digest`, with its inventory entry and observed
/// state.
pub fn decide(runs_once: bool, digest: &Digest, entry: Option<&Entry>, observation: &Observation) -> Action {
    match observation {
        Observation::Present { .. } if runs_once => Action::Keep,
        Observation::Unknown | Observation::Missing { .. } if runs_once && entry.is_some_and(|e| e.done) => {
            Action::Keep
        }
        Observation::Present { digest: Some(applied), intact } if applied == digest => {
            if *intact {
                Action::Keep
            } else {
                Action::Repair
            }
        }
        Observation::Present { .. } => Action::Apply,
        Observation::Missing { was_present: true } if entry.is_some_and(|e| !e.deleting) => Action::Repair,
        Observation::Missing { .. } => Action::Apply,
        // An object of the inventory may be present: wait for the first observation.
        Observation::Unknown if entry.is_some() => Action::Keep,
        Observation::Unknown => Action::Apply,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn action_for_each_observation_and_entry() {
        use Action::{Apply, Keep, Repair};
        let (digest, old) = (Digest::of("1"), Digest::of("2"));
        let present = |digest: Option<&Digest>, intact| Observation::Present { digest: digest.copied(), intact };
        let (entry, done) = (Entry::default(), Entry { done: true, ..Entry::default() });
        let deleting = Entry { deleting: true, ..Entry::default() };
        for (runs_once, entry, observation, expected) in [
            (false, None, Observation::Unknown, Apply),
            (false, Some(&entry), Observation::Unknown, Keep),
            (false, None, Observation::Missing { was_present: false }, Apply),
            (false, Some(&entry), Observation::Missing { was_present: false }, Apply),
            (false, Some(&entry), Observation::Missing { was_present: true }, Repair),
            (false, Some(&deleting), Observation::Missing { was_present: true }, Apply),
            (true, Some(&deleting), Observation::Missing { was_present: true }, Apply),
            (false, Some(&entry), present(Some(&digest), true), Keep),
            (false, Some(&entry), present(Some(&digest), false), Repair),
            (false, Some(&entry), present(Some(&old), true), Apply),
            (false, Some(&entry), present(None, false), Apply),
            (false, None, present(None, false), Apply),
            (true, None, Observation::Unknown, Apply),
            (true, Some(&entry), Observation::Unknown, Keep),
            (true, None, present(None, false), Keep),
            (true, Some(&entry), present(Some(&old), false), Keep),
            (true, Some(&entry), Observation::Missing { was_present: true }, Repair),
            (true, Some(&done), Observation::Missing { was_present: true }, Keep),
            (true, Some(&done), Observation::Unknown, Keep),
        ] {
            assert_eq!(
                decide(runs_once, &digest, entry, &observation),
                expected,
                "{runs_once} {entry:?} {observation:?}"
            );
        }
    }
}
