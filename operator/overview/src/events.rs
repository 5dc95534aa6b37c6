//! Events of the operator, by the resource that they are about.

use std::collections::HashMap;

use serde_json::Value;

use super::model::EventView;
use super::snapshot::{Snapshot, Watched};
use knative_operator_objects::text;
use knative_operator_shared::text::{MAX_MESSAGE, clip};

/// Maximum number of events of a resource that are shown.
const MAX_EVENTS: usize = 50;

/// Kind, namespace and name of a resource.
pub type About<'a> = (&'a str, &'a str, &'a str);

/// Events by resource, newest first.
pub struct Events<'s>(HashMap<About<'s>, Vec<&'s Value>>);

impl<'s> Events<'s> {
    /// The events in `snapshot`.
    pub fn of(snapshot: &'s Snapshot) -> Self {
        let mut all: HashMap<About<'s>, Vec<&'s Value>> = HashMap::new();
        for (_, event) in snapshot.all(Watched::Events) {
            let field = |name: &str| text(event, &format!("/involvedObject/{name}"));
            all.entry((field("kind"), field("namespace"), field("name"))).or_default().push(event);
        }
        for events in all.values_mut() {
            // RFC 3339 times in UTC sort as text.
            events.sort_by(|a, b| time(b).cmp(time(a)));
            events.truncate(MAX_EVENTS);
        }
        Self(all)
    }

    /// The events about a resource.
    pub fn about(&self, about: About<'_>) -> Vec<EventView> {
        self.0.get(&about).into_iter().flatten().map(|event| view(event)).collect()
    }
}

/// Time of the last occurrence.
fn time(event: &Value) -> &str {
    let times = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime", "/metadata/creationTimestamp"];
    times.iter().map(|path| text(event, path)).find(|time| !time.is_empty()).unwrap_or_default()
}

fn view(event: &Value) -> EventView {
    let count = event.pointer("/series/count").or_else(|| event.get("count")).and_then(Value::as_i64);
    EventView {
        at: seconds(time(event)),
        type_: text(event, "/type").to_owned(),
        // All who may write Events choose their length.
        reason: clip(text(event, "/reason"), MAX_MESSAGE),
        message: clip(text(event, "/message"), MAX_MESSAGE),
        count: count.unwrap_or(1).max(1),
    }
}

/// `time` without fractions of a second.
fn seconds(time: &str) -> String {
    time.split_once('.').map_or_else(|| time.to_owned(), |(whole, _)| format!("{whole}Z"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn events_are_sorted_by_last_occurrence() {
        let mut snapshot = Snapshot::default();
        let about = json!({"kind": "KnativeServing", "namespace": "n", "name": "s"});
        for (name, event) in [
            ("a", json!({"eventTime": "2026-01-01T00:00:00.5Z", "reason": "First", "type": "Normal"})),
            (
                "b",
                json!({"eventTime": "2026-01-01T00:00:00.1Z", "reason": "Again", "series": {"count": 3, "lastObservedTime": "2026-01-02T00:00:00.000001Z"}}),
            ),
            ("c", json!({"lastTimestamp": "2026-01-01T12:00:00Z", "count": 2, "reason": "Old"})),
        ] {
            let mut event = event;
            (event["metadata"], event["involvedObject"]) = (json!({"name": name, "namespace": "n"}), about.clone());
            snapshot.set(Watched::Events, event);
        }
        let events = Events::of(&snapshot).about(("KnativeServing", "n", "s"));
        let shown: Vec<_> =
            events.iter().map(|event| (event.reason.as_str(), event.at.as_str(), event.count)).collect();
        let expected = [
            ("Again", "2026-01-02T00:00:00Z", 3),
            ("Old", "2026-01-01T12:00:00Z", 2),
            ("First", "2026-01-01T00:00:00Z", 1),
        ];
        assert_eq!(shown, expected);
        assert!(Events::of(&snapshot).about(("KnativeEventing", "n", "s")).is_empty());
    }
}
