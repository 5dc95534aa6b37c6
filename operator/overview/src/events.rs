//! Events of the operator, by the resource that they are about.

use std::collections::HashMap;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::model::EventView;
use super::snapshot::{Snapshot, Watched};
use knative_operator_objects::text;
use knative_operator_shared::text::{MAX_MESSAGE, clip};

/// Maximum number of events of a resource that are shown.
const MAX_EVENTS: usize = 50;

/// How far clocks may differ: a later time is not believed. All who may write Events choose their
/// times, and would be first for as long as they like.
const CLOCK_SKEW: Duration = Duration::from_secs(60);

/// Kind, namespace and name of a resource.
pub type About<'a> = (&'a str, &'a str, &'a str);

/// Events by resource, newest first.
pub struct Events<'s> {
    by_resource: HashMap<About<'s>, Vec<&'s Value>>,
    /// The latest time that is believed.
    latest: String,
}

impl<'s> Events<'s> {
    /// The events in `snapshot`, at the time `now`.
    pub fn of(snapshot: &'s Snapshot, now: Timestamp) -> Self {
        let latest = now.checked_add(CLOCK_SKEW).unwrap_or(now).to_string();
        let mut all: HashMap<About<'s>, Vec<&'s Value>> = HashMap::new();
        for (_, event) in snapshot.all(Watched::Events) {
            let field = |name: &str| text(event, &format!("/involvedObject/{name}"));
            all.entry((field("kind"), field("namespace"), field("name"))).or_default().push(event);
        }
        for events in all.values_mut() {
            // RFC 3339 times in UTC sort as text.
            events.sort_by(|a, b| time(b, &latest).cmp(time(a, &latest)));
            events.truncate(MAX_EVENTS);
        }
        Self { by_resource: all, latest }
    }

    /// The events about a resource.
    pub fn about(&self, about: About<'_>) -> Vec<EventView> {
        self.by_resource.get(&about).into_iter().flatten().map(|event| view(event, &self.latest)).collect()
    }
}

/// Time of the last occurrence, not after `latest`. Only the API server writes the last one.
fn time<'e>(event: &'e Value, latest: &str) -> &'e str {
    let times = ["/series/lastObservedTime", "/lastTimestamp", "/eventTime"].into_iter();
    let mut written = times.map(|path| text(event, path)).filter(|time| !time.is_empty());
    written.find(|time| *time <= latest).unwrap_or_else(|| text(event, "/metadata/creationTimestamp"))
}

fn view(event: &Value, latest: &str) -> EventView {
    let count = event.pointer("/series/count").or_else(|| event.get("count")).and_then(Value::as_i64);
    EventView {
        at: seconds(time(event, latest)),
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
        let now = "2026-01-03T00:00:00Z".parse().unwrap();
        let events = Events::of(&snapshot, now).about(("KnativeServing", "n", "s"));
        let shown: Vec<_> =
            events.iter().map(|event| (event.reason.as_str(), event.at.as_str(), event.count)).collect();
        let expected = [
            ("Again", "2026-01-02T00:00:00Z", 3),
            ("Old", "2026-01-01T12:00:00Z", 2),
            ("First", "2026-01-01T00:00:00Z", 1),
        ];
        assert_eq!(shown, expected);
        assert!(Events::of(&snapshot, now).about(("KnativeEventing", "n", "s")).is_empty());
    }

    #[test]
    fn time_that_is_to_come_is_not_believed() {
        let now = "2026-01-03T00:00:00Z".parse().unwrap();
        let shown = |times: Value| {
            let mut event = times;
            event["involvedObject"] = json!({"kind": "KnativeServing", "namespace": "n", "name": "s"});
            event["metadata"] = json!({"name": "a", "namespace": "n", "creationTimestamp": "2026-01-01T00:00:00Z"});
            let mut snapshot = Snapshot::default();
            snapshot.set(Watched::Events, event);
            Events::of(&snapshot, now).about(("KnativeServing", "n", "s")).remove(0).at
        };
        let created = "2026-01-01T00:00:00Z";
        assert_eq!(shown(json!({"lastTimestamp": "9999-12-31T23:59:59Z"})), created);
        assert_eq!(shown(json!({"lastTimestamp": "later"})), created);
        let series = json!({"count": 2, "lastObservedTime": "2026-01-03T00:02:00.000000Z"});
        assert_eq!(
            shown(json!({"series": series, "eventTime": "2026-01-02T00:00:00.000000Z"})),
            "2026-01-02T00:00:00Z"
        );
        // The clock of the hub may be ahead.
        assert_eq!(shown(json!({"eventTime": "2026-01-03T00:00:30.000000Z"})), "2026-01-03T00:00:30Z");
        assert_eq!(shown(json!({})), created);
    }
}
