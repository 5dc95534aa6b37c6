//! Two states of an object as a unified diff. Pure.

use knative_operator_shared::label::{DIGEST, OWNER_DIGEST};
use std::fmt::Write;

use serde_json::Value;
use similar::{ChangeTag, TextDiff};

use super::terminal::styled;
use knative_operator_shared::yaml;

/// Metadata that the API server writes.
const SERVER_FIELDS: [&str; 6] =
    ["managedFields", "resourceVersion", "generation", "uid", "creationTimestamp", "selfLink"];

/// Annotations that only applied objects have.
const MARKS: [&str; 2] = [DIGEST, OWNER_DIGEST];

/// `object` without the fields that the API server writes, its status, and the digests.
pub fn without_noise(object: &Value) -> Value {
    let mut object = object.clone();
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|key, _| !SERVER_FIELDS.contains(&key.as_str()));
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.retain(|name, _| !MARKS.contains(&name.as_str()));
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    object
}

/// The difference from `before` to `after`, where `None` means absent; `None` if they are equal.
pub fn diff(name: &str, before: Option<&Value>, after: Option<&Value>, color: bool) -> Option<String> {
    if before == after {
        return None;
    }
    let text = |state: Option<&Value>| state.map(|s| yaml::write(s).unwrap_or_default()).unwrap_or_default();
    let (old, new) = (text(before), text(after));
    let paint = |code: &str, line: &str| if color { styled(code, line) + "\n" } else { format!("{line}\n") };
    let side = |state: Option<&Value>, side: &str| {
        if state.is_some() { format!("{side}/{name}") } else { "/dev/null".to_owned() }
    };
    let mut out =
        paint("1", &format!("--- {}", side(before, "live"))) + &paint("1", &format!("+++ {}", side(after, "planned")));
    for hunk in TextDiff::from_lines(&old, &new).unified_diff().context_radius(3).iter_hunks() {
        out += &paint("36", &hunk.header().to_string());
        for change in hunk.iter_changes() {
            let (sign, code) = match change.tag() {
                ChangeTag::Delete => ('-', "31"),
                ChangeTag::Insert => ('+', "32"),
                ChangeTag::Equal => (' ', ""),
            };
            let line = format!("{sign}{}", change.value().trim_end_matches('\n'));
            if code.is_empty() {
                let _ = writeln!(out, "{line}");
            } else {
                out += &paint(code, &line);
            }
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::command::terminal::visible;

    #[test]
    fn changes_are_shown_without_server_fields() {
        let object = |value: &str, version: &str| json!({"kind": "ConfigMap", "metadata": {"name": "a", "resourceVersion": version, "annotations": {"operator.knative.dev/digest": version}}, "data": {"k": value}, "status": {}});
        let (before, after) = (without_noise(&object("1", "7")), without_noise(&object("2", "8")));
        assert_eq!(diff("a", Some(&before), Some(&without_noise(&object("1", "8"))), false), None);
        let expected = "--- live/a\n+++ planned/a\n@@ -1,5 +1,5 @@\n data:\n-  k: \"1\"\n+  k: \"2\"\n kind: ConfigMap\n metadata:\n   name: a\n";
        assert_eq!(diff("a", Some(&before), Some(&after), false).unwrap(), expected);
        let colored = visible(&diff("a", None, Some(&after), true).unwrap());
        assert!(colored.contains("\x1b[32m+kind: ConfigMap\x1b[0m\n"), "{colored}");
        assert!(diff("a", Some(&after), None, false).unwrap().starts_with("--- live/a\n+++ /dev/null\n@@"));
    }
}
