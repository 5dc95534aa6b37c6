//! Entries of the tables: fields that need the same, for the same reason.

use std::borrow::Cow;

use serde_json::Value;

/// Maximum length of a plain value in bytes: names of containers are that long.
const MAX_PLAIN: usize = 64;

/// What a user needs to set a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Needs {
    /// Nothing, if the value is plain; [`Needs::Customize`] for others.
    Nothing,
    /// Nothing for these values; [`Needs::Customize`] for others.
    NothingFor(&'static [&'static str]),
    /// The permission `customize`.
    Customize,
    /// The permission `use`, about which the webhook asks separately.
    Use,
}

/// Fields below `spec`, or keys of a ConfigMap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    names: &'static str,
    /// What a user needs to set them.
    pub needs: Needs,
    /// The reason, as a sentence.
    pub reason: &'static str,
}

/// A ConfigMap that `spec.config` can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConfigMap {
    /// Name, without `config-`.
    pub name: &'static str,
    /// Its keys.
    pub entries: &'static [Entry],
}

impl Entry {
    const fn new(names: &'static str, needs: Needs, reason: &'static str) -> Self {
        Self { names, needs, reason }
    }

    /// `names`, separated by spaces, which need nothing.
    pub(super) const fn free(names: &'static str, reason: &'static str) -> Self {
        Self::new(names, Needs::Nothing, reason)
    }

    /// `names` that need nothing for these `values`.
    pub(super) const fn free_for(names: &'static str, values: &'static [&'static str], reason: &'static str) -> Self {
        Self::new(names, Needs::NothingFor(values), reason)
    }

    /// `names` that need the permission.
    pub(super) const fn restricted(names: &'static str, reason: &'static str) -> Self {
        Self::new(names, Needs::Customize, reason)
    }

    /// `names` that need the permission `use`.
    pub(super) const fn target(names: &'static str, reason: &'static str) -> Self {
        Self::new(names, Needs::Use, reason)
    }

    /// Its fields or keys. `[]` stands for each item of a list, and `*` at the end for any text.
    pub fn names(&self) -> impl Iterator<Item = &'static str> + use<> {
        self.names.split_whitespace()
    }

    /// Whether a name with `*` at the end stands for `name`.
    pub(super) fn has_pattern_for(&self, name: &str) -> bool {
        self.names().any(|own| own.strip_suffix('*').is_some_and(|start| name.starts_with(start)))
    }

    /// Whether a change from `old` to `new` needs no permission `customize`; `None` is a field that
    /// is not set.
    pub(super) fn permits(&self, old: Option<&Value>, new: Option<&Value>) -> bool {
        let mut values = [old, new].into_iter().flatten();
        match self.needs {
            Needs::Nothing => values.all(is_plain),
            Needs::NothingFor(permitted) => values.all(|value| permitted.contains(&&*text(value))),
            Needs::Customize => false,
            Needs::Use => true,
        }
    }
}

/// Whether `value` is a number, a switch, a duration, a name, or similar. A key of a ConfigMap is a
/// file in some containers, so that a longer text could be a configuration of its own.
fn is_plain(value: &Value) -> bool {
    match value {
        Value::Bool(_) | Value::Number(_) => true,
        Value::String(text) => {
            text.len() <= MAX_PLAIN && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
        }
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

/// `value` as text, without quotes.
fn text(value: &Value) -> Cow<'_, str> {
    value.as_str().map_or_else(|| Cow::Owned(value.to_string()), Cow::Borrowed)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_plain_values_are_free() {
        let free = Entry::free("a", "");
        for value in [
            json!("1m30s"),
            json!("500Mi"),
            json!("1.5e-3"),
            json!("+1"),
            json!("Enabled"),
            json!(""),
            json!(7),
            json!(false),
        ] {
            assert!(free.permits(None, Some(&value)) && free.permits(Some(&value), None), "{value}");
        }
        for value in [
            json!("http://x"),
            json!("a b"),
            json!("a\nb"),
            json!("{}"),
            json!("µ"),
            json!("a".repeat(65)),
            json!({}),
            json!([]),
        ] {
            assert!(!free.permits(None, Some(&value)) && !free.permits(Some(&value), None), "{value}");
        }
        let switch = Entry::free_for("a", &["false", "x"], "");
        for (old, new, expected) in [
            (None, Some(json!(false)), true),
            (Some(json!("x")), Some(json!("false")), true),
            (None, Some(json!(true)), false),
            (Some(json!(true)), None, false),
        ] {
            assert_eq!(switch.permits(old.as_ref(), new.as_ref()), expected, "{old:?} to {new:?}");
        }
        assert!(!Entry::restricted("a", "").permits(None, Some(&json!(1))));
        assert!(Entry::target("a", "").permits(None, Some(&json!({}))));
    }
}
