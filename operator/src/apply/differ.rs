//! What to do about one object. Pure.

use super::inventory::{Entry, Marker};
use super::preserve::scaled;
use crate::object::Digest;
use crate::plan::Item;

/// How an object that is there already is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Whoever changes it, it is put right.
    Exact,
    /// Others may write to it too (webhook rules and bundles by Knative's own webhooks, CRD conversion bundles, replicas
    /// by a scaler, the rules of an aggregated ClusterRole): it is applied again only when the plan changes.
    Shared,
    /// It runs once: never patched, never run again once done.
    Once,
}

impl Policy {
    /// The policy for `item`.
    pub fn of(item: &Item) -> Self {
        match (item.id.group.as_str(), item.id.kind.as_str()) {
            ("batch", "Job") => Self::Once,
            ("admissionregistration.k8s.io", _) | ("apiextensions.k8s.io", "CustomResourceDefinition") => Self::Shared,
            _ if scaled(&item.id) || item.object.get("aggregationRule").is_some() => Self::Shared,
            _ => Self::Exact,
        }
    }
}

/// What is seen of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sight {
    /// Nobody has looked yet.
    Unknown,
    /// It isn't there.
    Missing,
    /// It is there, with this marker.
    Present(Marker),
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

/// What to do about an object with `digest` and `policy`, of which `entry` is remembered and `sight` seen.
pub fn decide(policy: Policy, digest: &Digest, entry: Option<&Entry>, sight: &Sight) -> Action {
    let applied = entry.filter(|e| !e.digest.is_none());
    match (policy, applied, sight) {
        (Policy::Once, _, Sight::Present(_)) => Action::Keep,
        (Policy::Once, Some(entry), Sight::Unknown | Sight::Missing) if entry.done => Action::Keep,
        (Policy::Once, Some(_), Sight::Unknown) => Action::Keep,
        (_, None, _) => Action::Apply,
        (Policy::Once, Some(_), Sight::Missing) => Action::Repair,
        (_, Some(entry), _) if entry.digest != *digest => Action::Apply,
        (_, Some(_), Sight::Missing) => Action::Repair,
        (Policy::Exact, Some(entry), Sight::Present(marker)) if entry.marker != *marker => Action::Repair,
        _ => Action::Keep,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use serde_json::json;

    use super::*;

    #[test]
    fn each_policy_against_each_sight() {
        use Action::{Apply, Keep, Repair};
        use Policy::{Exact, Once, Shared};
        let digest = Digest::of(&json!(1));
        let marker = |rv: &str| Marker::of(&ObjectMeta { resource_version: Some(rv.into()), ..Default::default() });
        let entry = |digest: &Digest, done: bool| Entry { digest: digest.clone(), marker: marker("1"), done, ..Entry::default() };
        let (same, other) = (Sight::Present(marker("1")), Sight::Present(marker("2")));
        let (now, before, done, meant) =
            (entry(&digest, false), entry(&Digest::of(&json!(2)), false), entry(&digest, true), Entry::default());
        for (policy, entry, sight, expected) in [
            (Exact, None, &Sight::Missing, Apply),
            (Exact, None, &same, Apply),
            (Exact, Some(&meant), &same, Apply),
            (Exact, Some(&before), &same, Apply),
            (Exact, Some(&now), &same, Keep),
            (Exact, Some(&now), &Sight::Unknown, Keep),
            (Exact, Some(&now), &Sight::Missing, Repair),
            (Exact, Some(&now), &other, Repair),
            (Shared, Some(&now), &other, Keep),
            (Shared, Some(&now), &Sight::Missing, Repair),
            (Shared, Some(&before), &other, Apply),
            (Once, None, &Sight::Missing, Apply),
            (Once, None, &same, Keep),
            (Once, Some(&before), &other, Keep),
            (Once, Some(&now), &Sight::Missing, Repair),
            (Once, Some(&done), &Sight::Missing, Keep),
        ] {
            assert_eq!(decide(policy, &digest, entry, sight), expected, "{policy:?} {entry:?} {sight:?}");
        }
    }
}
