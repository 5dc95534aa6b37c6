//! Who paused a fleet and why, and who changed what it rolls out: the webhook records the users,
//! and removes the former with the pause. Pure.

use serde_json::{Value, json};

use super::author::User;
use super::write::Write;
use knative_operator_shared::api::Kind;
use knative_operator_shared::label::{CHANGED_BY, PAUSE_REASON, PAUSED_BY};
use knative_operator_shared::text::{one_line, show_controls, start};

/// Maximum length of what is recorded and shown, in bytes.
const MAX_LENGTH: usize = 512;

/// Whether the fleet is paused.
fn is_paused(fleet: &Value) -> bool {
    fleet["spec"]["rollout"]["paused"] == true
}

/// Whether `write` changes the templates or overrides of the fleet.
fn changes_templates(write: &Write<'_>) -> bool {
    let templates = |fleet: &Value| ["serving", "eventing", "overrides"].map(|field| fleet["spec"][field].clone());
    templates(write.new) != templates(write.before())
}

/// `text` that a user chose, as it is shown: one line of limited length, with escapes in place of
/// characters that terminals obey.
pub fn shown(text: &str) -> String {
    show_controls(start(&one_line(text), MAX_LENGTH))
}

/// The change of the metadata that records who paused the fleet of `write`, and who changed its
/// templates, as a JSON merge patch (RFC 7386); `None` if they are recorded. Nobody else can be
/// recorded. Who gives a pause another reason takes it over.
pub fn record(write: &Write<'_>, user: &User) -> Option<Value> {
    if write.kind != Kind::Fleet {
        return None;
    }
    let annotation = |object: &Value, name: &str| object["metadata"]["annotations"][name].clone();
    let (old, new) = (|name| annotation(write.before(), name), |name| annotation(write.new, name));
    let user = Value::from(shown(&user.username));
    let changed = if changes_templates(write) { user.clone() } else { old(CHANGED_BY) };
    let (paused, reason) = match (is_paused(write.new), is_paused(write.before())) {
        (false, _) => (Value::Null, Value::Null),
        // One that was there before is somebody else's.
        (true, false) if new(PAUSE_REASON) == old(PAUSE_REASON) => (user, Value::Null),
        (true, false) => (user, new(PAUSE_REASON)),
        (true, true) if old(PAUSED_BY) == user => (user, new(PAUSE_REASON)),
        // Another reason is another one's pause: what resumes the former leaves it.
        (true, true) if !new(PAUSE_REASON).is_null() && new(PAUSE_REASON) != old(PAUSE_REASON) => {
            (user, new(PAUSE_REASON))
        }
        (true, true) => (old(PAUSED_BY), old(PAUSE_REASON)),
    };
    let mut annotations = json!({});
    for (name, wanted) in [(PAUSED_BY, paused), (PAUSE_REASON, reason), (CHANGED_BY, changed)] {
        if wanted != new(name) {
            annotations[name] = wanted;
        }
    }
    (annotations != json!({})).then(|| json!({"metadata": {"annotations": annotations}}))
}

/// Who paused a fleet with these annotations, and why, in words.
pub fn describe<'a>(annotation: impl Fn(&str) -> Option<&'a str>) -> String {
    let shown = |name: &str| {
        annotation(name).map(|text| show_controls(start(&one_line(text), MAX_LENGTH))).filter(|text| !text.is_empty())
    };
    let reason = shown(PAUSE_REASON).map(|reason| format!(": {reason}")).unwrap_or_default();
    match shown(PAUSED_BY) {
        Some(by) => format!("{by} paused the fleet{reason}"),
        None => format!("spec.rollout.paused is true{reason}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fleet(paused: bool, by: Option<&str>, reason: Option<&str>) -> Value {
        json!({"metadata": {"annotations": {PAUSED_BY: by, PAUSE_REASON: reason}}, "spec": {"rollout": {"paused": paused}}})
    }

    #[test]
    fn user_who_paused_is_recorded_and_nobody_else() {
        let (running, by_ann) = (fleet(false, None, None), fleet(true, Some("ann"), Some("freeze")));
        let by_jane = fleet(true, Some("jane"), Some("sale"));
        for (old, new, expected) in [
            (None, fleet(true, Some("me"), Some("why")), (Some("jane"), Some("why"))),
            (None, fleet(false, Some("me"), Some("why")), (None, None)),
            (Some(&running), fleet(true, None, None), (Some("jane"), None)),
            (Some(&running), fleet(true, Some("ann"), Some("why")), (Some("jane"), Some("why"))),
            (Some(&by_ann), by_ann.clone(), (Some("ann"), Some("freeze"))),
            // Nobody takes it over, or off.
            (Some(&by_ann), fleet(true, Some("me"), Some("other")), (Some("jane"), Some("other"))),
            (Some(&by_ann), fleet(true, Some("jane"), Some("freeze")), (Some("ann"), Some("freeze"))),
            (Some(&by_ann), fleet(true, None, None), (Some("ann"), Some("freeze"))),
            (Some(&by_jane), fleet(true, Some("jane"), Some("other")), (Some("jane"), Some("other"))),
            // A reason that waits for somebody else's pause.
            (Some(&running), fleet(false, None, Some("why")), (None, None)),
            (Some(&fleet(false, None, Some("why"))), fleet(true, None, Some("why")), (Some("jane"), None)),
            // The next pause has its own reason.
            (Some(&by_ann), fleet(false, Some("ann"), Some("freeze")), (None, None)),
        ] {
            let write = Write { kind: Kind::Fleet, namespace: "n", new: &new, old };
            let user = User { username: "jane".to_owned(), ..User::default() };
            let mut stored = new.clone();
            json_patch::merge(&mut stored, &record(&write, &user).unwrap_or_else(|| json!({})));
            let annotation = |name: &str| stored["metadata"]["annotations"][name].as_str();
            assert_eq!((annotation(PAUSED_BY), annotation(PAUSE_REASON)), expected, "{new}");
        }
    }

    #[test]
    fn user_who_changed_the_templates_is_recorded_and_nobody_else() {
        let fleet = |version: &str, paused: bool, by: Option<&str>| {
            json!({"metadata": {"annotations": {CHANGED_BY: by}}, "spec": {"serving": {"spec": {"version": version}},
                "rollout": {"paused": paused, "stages": []}}})
        };
        let old = fleet("1.22", false, Some("ann"));
        for (old, new, expected) in [
            (None, fleet("1.22", false, Some("me")), Some("jane")),
            (Some(&old), fleet("1.23", false, Some("ann")), Some("jane")),
            (Some(&old), fleet("1.22", true, Some("me")), Some("ann")),
            (Some(&old), fleet("1.22", false, None), Some("ann")),
            // One of an earlier version keeps its unknown user.
            (Some(&fleet("1.22", false, None)), fleet("1.22", true, Some("me")), None),
        ] {
            let write = Write { kind: Kind::Fleet, namespace: "n", new: &new, old };
            let user = User { username: "jane".to_owned(), ..User::default() };
            let mut stored = new.clone();
            json_patch::merge(&mut stored, &record(&write, &user).unwrap_or_else(|| json!({})));
            assert_eq!(stored["metadata"]["annotations"][CHANGED_BY].as_str(), expected, "{new}");
        }
    }

    #[test]
    fn pause_is_described() {
        let text = |by: Option<&'static str>, reason: Option<&'static str>| {
            describe(|name| if name == PAUSED_BY { by } else { reason })
        };
        assert_eq!(text(Some("jane"), Some("freeze\nof\u{1b} May")), "jane paused the fleet: freeze of\\u{1b} May");
        assert_eq!(text(Some("jane"), None), "jane paused the fleet");
        assert_eq!(text(None, Some("freeze")), "spec.rollout.paused is true: freeze");
        assert_eq!(text(None, None), "spec.rollout.paused is true");
    }
}
