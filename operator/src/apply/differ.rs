//! What to do about one object. Pure.

use super::inventory::Entry;
use crate::object::Digest;
use crate::plan::Item;

/// What is seen of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Nobody has looked yet.
    Unknown,
    /// It isn't there. `lost`: it was, as long as this process has looked.
    Missing {
        /// Whether it was there before.
        lost: bool,
    },
    /// It is there.
    Present {
        /// The digest of what was applied; none on an object that was never applied by us.
        digest: Option<Digest>,
        /// Whether every field that was applied is still as it was.
        intact: bool,
    },
}

/// What to do, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is as it should be, as far as anybody knows.
    Keep,
    /// The plan has changed: apply it.
    Apply,
    /// The cluster has changed: put it right.
    Repair,
}

/// Whether it runs once: never patched, never run again once done.
pub fn once(item: &Item) -> bool {
    (item.id.group.as_str(), item.id.kind.as_str()) == ("batch", "Job")
}

/// What to do about an object that is to have `digest`, of which `entry` is remembered from before and `sight` seen.
pub fn decide(once: bool, digest: &Digest, entry: Option<&Entry>, sight: &Sight) -> Action {
    match sight {
        Sight::Present { .. } if once => Action::Keep,
        Sight::Unknown | Sight::Missing { .. } if once && entry.is_some_and(|e| e.done) => Action::Keep,
        Sight::Present { digest: Some(applied), intact } if applied == digest => {
            if *intact {
                Action::Keep
            } else {
                Action::Repair
            }
        }
        Sight::Present { .. } => Action::Apply,
        Sight::Missing { lost: true } if entry.is_some() => Action::Repair,
        Sight::Missing { .. } => Action::Apply,
        // What is remembered may be there: it is looked at first.
        Sight::Unknown if entry.is_some() => Action::Keep,
        Sight::Unknown => Action::Apply,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sight_of_what_is_remembered_and_what_is_not() {
        use Action::{Apply, Keep, Repair};
        let (digest, old) = (Digest::of("1"), Digest::of("2"));
        let present = |digest: Option<&Digest>, intact| Sight::Present { digest: digest.copied(), intact };
        let (entry, done) = (Entry::default(), Entry { done: true, ..Entry::default() });
        for (once, entry, sight, expected) in [
            (false, None, Sight::Unknown, Apply),
            (false, Some(&entry), Sight::Unknown, Keep),
            (false, None, Sight::Missing { lost: false }, Apply),
            (false, Some(&entry), Sight::Missing { lost: false }, Apply),
            (false, Some(&entry), Sight::Missing { lost: true }, Repair),
            (false, Some(&entry), present(Some(&digest), true), Keep),
            (false, Some(&entry), present(Some(&digest), false), Repair),
            (false, Some(&entry), present(Some(&old), true), Apply),
            (false, Some(&entry), present(None, false), Apply),
            (false, None, present(None, false), Apply),
            (true, None, Sight::Unknown, Apply),
            (true, Some(&entry), Sight::Unknown, Keep),
            (true, None, present(None, false), Keep),
            (true, Some(&entry), present(Some(&old), false), Keep),
            (true, Some(&entry), Sight::Missing { lost: true }, Repair),
            (true, Some(&done), Sight::Missing { lost: true }, Keep),
            (true, Some(&done), Sight::Unknown, Keep),
        ] {
            assert_eq!(decide(once, &digest, entry, &sight), expected, "{once} {entry:?} {sight:?}");
        }
    }
}
