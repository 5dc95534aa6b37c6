//! Guards the removal of clusters from a fleet: a mistyped label must not delete every
//! installation.

use std::collections::BTreeSet;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use knative_operator_shared::api::ClusterProfileReference;
use knative_operator_shared::fleet::stage::limit;
use sha2::{Digest, Sha256};

/// Percentage of the clusters that may leave at the same time, by default.
const MAX_AT_ONCE: usize = 10;

/// Length of the name of a removal, in bytes.
const NAME_DIGEST: usize = 16;

/// Clusters that leave a fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Removal {
    /// They may leave.
    Allowed(BTreeSet<ClusterProfileReference>),
    /// Too many would leave at the same time: none does, until a removal with this name is
    /// approved.
    Blocked {
        /// Name of the removal.
        name: String,
        /// Number of clusters that may leave at the same time.
        limit: usize,
    },
}

/// Whether the clusters `leaving` may leave a fleet. Its clusters `removed` are already being
/// removed; `staying` is the number of others; `is_approved` tells whether a removal is approved.
pub fn guard(
    leaving: BTreeSet<ClusterProfileReference>,
    removed: &BTreeSet<ClusterProfileReference>,
    staying: usize,
    max_at_once: Option<&IntOrString>,
    is_approved: impl Fn(&str) -> bool,
) -> Removal {
    let total = leaving.len() + removed.len() + staying;
    let limit = limit(max_at_once, total * MAX_AT_ONCE / 100, total);
    // At least one cluster may leave, but a percentage doesn't allow all of them.
    let at_least_one = if staying == 0 { limit } else { limit.max(1) };
    if leaving.is_empty() || leaving.len() + removed.len() <= at_least_one {
        return Removal::Allowed(leaving);
    }
    // Those that are being removed were part of the removal that was approved.
    let name = name(leaving.union(removed));
    if is_approved(&name) { Removal::Allowed(leaving) } else { Removal::Blocked { name, limit } }
}

/// Name of the removal of `clusters`, for its approval.
fn name<'c>(clusters: impl Iterator<Item = &'c ClusterProfileReference>) -> String {
    let text = clusters.map(ToString::to_string).collect::<Vec<_>>().join("\n");
    Sha256::digest(text).iter().take(NAME_DIGEST).map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn too_many_clusters_do_not_leave() {
        let named = |numbers: std::ops::Range<usize>| -> BTreeSet<_> {
            numbers.map(|n| ClusterProfileReference { name: n.to_string(), namespace: "n".to_owned() }).collect()
        };
        let clusters = |count| named(0..count);
        let allowed = |leaving, removed: usize, staying, limit: Option<IntOrString>| matches!(guard(clusters(leaving), &named(500..500 + removed), staying, limit.as_ref(), |_| false), Removal::Allowed(all) if all.len() == leaving);
        assert!(allowed(0, 0, 0, None) && allowed(1, 0, 3, None));
        // The last cluster.
        assert!(!allowed(1, 0, 0, None) && allowed(1, 0, 0, Some(IntOrString::Int(1))));
        assert!(allowed(10, 0, 90, None) && !allowed(11, 0, 89, None) && !allowed(2, 0, 3, None));
        // Those that are already being removed count, too.
        assert!(allowed(5, 5, 90, None) && !allowed(6, 5, 89, None));
        let percent = || Some(IntOrString::String("50%".to_owned()));
        assert!(allowed(50, 0, 50, percent()) && !allowed(51, 0, 49, percent()));
        assert!(allowed(3, 0, 0, Some(IntOrString::Int(3))) && !allowed(4, 0, 100, Some(IntOrString::Int(3))));
        // An approval is for this removal only.
        let Removal::Blocked { name, limit } = guard(clusters(4), &clusters(0), 0, None, |_| false) else {
            unreachable!()
        };
        assert_eq!(limit, 0);
        assert!(matches!(guard(clusters(4), &clusters(0), 0, None, |approved| approved == name), Removal::Allowed(_)));
        assert!(matches!(guard(named(2..4), &named(0..2), 0, None, |approved| approved == name), Removal::Allowed(_)));
        assert!(matches!(
            guard(clusters(5), &clusters(0), 0, None, |approved| approved == name),
            Removal::Blocked { .. }
        ));
    }
}
