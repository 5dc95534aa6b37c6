//! Pods that have been asked to end, and drain. Pure.

use jiff::Timestamp;

use super::foreign_text::name;
use super::identity::ObjectId;
use super::pod::Pod;

/// Until when those of `pods` drain that the workloads `of` created; `None` if there are none, or
/// one was not asked to end yet.
pub fn describe(pods: &[Pod], of: &[ObjectId], now: Timestamp) -> Option<String> {
    let left: Vec<&Pod> = pods.iter().filter(|pod| of.iter().any(|id| pod.is_of(id))).collect();
    let until: Option<Vec<&str>> = left.iter().map(|pod| pod.metadata.deletion_timestamp.as_deref()).collect();
    // RFC 3339 times in UTC sort as text.
    let until = until?.into_iter().max()?;
    let count = if left.len() == 1 { "1 Pod".to_owned() } else { format!("{} Pods", left.len()) };
    let drains = if left.len() == 1 { "drains" } else { "drain" };
    if until.parse::<Timestamp>().ok()? >= now {
        return Some(format!("{count} {drains}, until {until} at the latest"));
    }
    let late = left.iter().filter(|pod| pod.metadata.deletion_timestamp.as_deref() == Some(until));
    let node = late.map(|pod| pod.spec.node_name.as_str()).find(|node| !node.is_empty());
    let node = node
        .map(|node| format!(". Node \"{}\" may be down, or a finalizer retains the Pod", name(node)))
        .unwrap_or_default();
    Some(format!("{count} should have ended by {until}{node}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn drain_ends_with_the_last_grace_period() {
        let pod = |of: &str, until: Option<&str>| -> Pod {
            serde_json::from_value(json!({"metadata": {"name": "p", "labels": {"pod-template-hash": "x"}, "deletionTimestamp": until,
                "ownerReferences": [{"kind": "ReplicaSet", "name": format!("{of}-x"), "controller": true}]}, "spec": {"nodeName": "node-1"}}))
            .unwrap()
        };
        let left = ["a", "b"].map(|name| ObjectId::new("apps", "Deployment", "n", name));
        let (early, late) = (Some("2026-01-01T12:00:30Z"), Some("2026-01-01T12:10:00Z"));
        for (pods, now, expected) in [
            (
                vec![pod("a", early), pod("b", late), pod("c", None)],
                "2026-01-01T12:00:00Z",
                Some("2 Pods drain, until 2026-01-01T12:10:00Z at the latest"),
            ),
            (
                vec![pod("a", early)],
                "2026-01-01T12:00:00Z",
                Some("1 Pod drains, until 2026-01-01T12:00:30Z at the latest"),
            ),
            (
                vec![pod("a", early)],
                "2026-01-01T12:01:00Z",
                Some(
                    "1 Pod should have ended by 2026-01-01T12:00:30Z. Node \"node-1\" may be down, or a finalizer retains the Pod",
                ),
            ),
            (vec![pod("a", early), pod("b", None)], "2026-01-01T12:00:00Z", None),
            (vec![pod("c", early)], "2026-01-01T12:00:00Z", None),
        ] {
            assert_eq!(describe(&pods, &left, now.parse().unwrap()).as_deref(), expected);
        }
    }
}
