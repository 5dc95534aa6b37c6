//! What differs between two specs and needs the permission.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::table::{self, Below};
use crate::{drop_nulls, has_nulls};
use knative_operator_shared::api::Component;
use knative_operator_shared::text::start;

/// Maximum number of fields that are named: users write as many as a resource has values.
const MAX_CHANGED: usize = 1000;
/// Maximum length of a name in a path, in bytes. Those of users may be longer, and the path of each
/// field below has them.
const MAX_NAME: usize = 253;
/// Start of the names of ConfigMaps, which `spec.config` may omit.
const CONFIG: &str = "config-";
/// Key with the documentation of a ConfigMap.
const EXAMPLE: &str = "_example";
/// Fields that mean the same if they are empty or missing. Others don't: an empty `affinity`
/// removes that of the release.
const EMPTY: [&str; 6] = ["annotations", "labels", "namespace", "namespaceConfiguration", "nodeSelector", "registry"];

/// The paths of the fields that differ between the specs `old` and `new` of `component` and need
/// the permission, such as `spec.registry`. A null spec sets nothing.
pub fn changes(component: Component, old: &Value, new: &Value) -> Vec<String> {
    if old == new {
        return Vec::new();
    }
    let (old, new) = (normalized(old), normalized(new));
    let mut comparison = Comparison { component, changed: Vec::new() };
    comparison.object("", "spec", significant("", Some(&old)), significant("", Some(&new)));
    comparison.changed
}

/// `spec` without nulls, and with the short names of ConfigMaps.
fn normalized(spec: &Value) -> Cow<'_, Value> {
    let is_long = |name: &String| name.starts_with(CONFIG);
    let has_long = spec.get("config").and_then(Value::as_object).is_some_and(|config| config.keys().any(is_long));
    if !has_long && !has_nulls(spec) {
        return Cow::Borrowed(spec);
    }
    let mut spec = spec.clone();
    drop_nulls(&mut spec);
    let Some(config) = spec.get_mut("config").and_then(Value::as_object_mut) else { return Cow::Owned(spec) };
    let full: Vec<String> = config.keys().filter(|name| is_long(name)).cloned().collect();
    for name in full {
        let (short, Some(own)) = (&name[CONFIG.len()..], config.remove(&name)) else { continue };
        // Under both names, one is ignored: they are compared as a whole, which needs the
        // permission.
        let entries = match config.remove(short) {
            Some(other) => json!([own, other]),
            None => own,
        };
        config.insert(short.to_owned(), entries);
    }
    Cow::Owned(spec)
}

/// `value` of the field `pattern`, unless it means the same as a missing one.
fn significant<'v>(pattern: &str, value: Option<&'v Value>) -> Option<&'v Value> {
    let name = pattern.rsplit('.').next().unwrap_or_default();
    value.filter(|value| match value {
        Value::Null => false,
        Value::Array(items) => !items.is_empty(),
        Value::Object(fields) => !fields.is_empty() || !EMPTY.contains(&name),
        Value::Bool(_) | Value::Number(_) | Value::String(_) => true,
    })
}

/// Parts of a value with their names, in order.
type Parts<'v> = Vec<(&'v str, &'v Value)>;

/// The fields of `value`: none if it is missing. `None` if it is not an object.
fn fields(value: Option<&Value>) -> Option<Parts<'_>> {
    let Some(value) = value else { return Some(Parts::new()) };
    Some(sorted(value.as_object()?.iter().map(|(name, value)| (name.as_str(), value)).collect()))
}

/// The items of the list `value` by the field `key`: none if it is missing. `None` if it is not a
/// list, or if an item has no name of its own.
fn items<'v>(value: Option<&'v Value>, key: &str) -> Option<Parts<'v>> {
    let Some(value) = value else { return Some(Parts::new()) };
    let named: Option<Parts<'v>> =
        value.as_array()?.iter().map(|item| Some((item.get(key)?.as_str()?, item))).collect();
    named.map(sorted).filter(|named| named.windows(2).all(|two| two[0].0 != two[1].0))
}

fn sorted(mut parts: Parts<'_>) -> Parts<'_> {
    parts.sort_by_key(|(name, _)| *name);
    parts
}

/// The parts in which `old` and `new` differ, in the order of their names.
fn pairs<'v>(old: Parts<'v>, new: Parts<'v>) -> Vec<(&'v str, Option<&'v Value>, Option<&'v Value>)> {
    let (mut old, mut new) = (old.into_iter().peekable(), new.into_iter().peekable());
    let mut all = Vec::new();
    while let Some(name) = [old.peek(), new.peek()].into_iter().flatten().map(|(name, _)| *name).min() {
        let [old, new] = [&mut old, &mut new].map(|parts| parts.next_if(|(own, _)| *own == name).map(|(_, v)| v));
        if old != new {
            all.push((name, old, new));
        }
    }
    all
}

/// A comparison of two specs.
struct Comparison {
    component: Component,
    /// Paths of what needs the permission, [`MAX_CHANGED`] at most.
    changed: Vec<String>,
}

/// `name` in a path.
fn shown(name: &str) -> &str {
    start(name, MAX_NAME)
}

impl Comparison {
    fn record(&mut self, path: String) {
        if self.changed.len() < MAX_CHANGED {
            self.changed.push(path);
        }
    }

    /// Compares the field `pattern`, which is at `path`.
    fn value(&mut self, pattern: &str, path: &str, old: Option<&Value>, new: Option<&Value>) {
        let (old, new) = (significant(pattern, old), significant(pattern, new));
        if old == new || table::field(pattern).is_some_and(|entry| entry.permits(old, new)) {
            return;
        }
        match table::below(pattern) {
            Some(Below::Settings) => self.config(path, old, new),
            Some(Below::Fields) => self.object(pattern, path, old, new),
            Some(Below::Items) => self.list(pattern, path, old, new),
            None => self.record(path.to_owned()),
        }
    }

    fn object(&mut self, pattern: &str, path: &str, old: Option<&Value>, new: Option<&Value>) {
        let (Some(old), Some(new)) = (fields(old), fields(new)) else {
            self.record(path.to_owned());
            return;
        };
        for (name, old, new) in pairs(old, new) {
            self.value(&table::child(pattern, name), &format!("{path}.{}", shown(name)), old, new);
        }
    }

    /// Compares items by their names, as the operator matches them with workloads and containers.
    fn list(&mut self, pattern: &str, path: &str, old: Option<&Value>, new: Option<&Value>) {
        let key = if pattern == "workloads" { "name" } else { "container" };
        let (Some(old), Some(new)) = (items(old, key), items(new, key)) else {
            self.record(path.to_owned());
            return;
        };
        for (name, old, new) in pairs(old, new) {
            self.object(&format!("{pattern}[]"), &format!("{path}[{}]", shown(name)), old, new);
        }
    }

    /// Compares the keys of ConfigMaps.
    fn config(&mut self, path: &str, old: Option<&Value>, new: Option<&Value>) {
        let (Some(old), Some(new)) = (fields(old), fields(new)) else {
            self.record(path.to_owned());
            return;
        };
        for (map, old, new) in pairs(old, new) {
            let path = format!("{path}.{}", shown(map));
            let (Some(old), Some(new)) = (fields(old), fields(new)) else {
                self.record(path);
                continue;
            };
            for (key, old, new) in pairs(old, new) {
                let setting = table::setting(self.component, map, key);
                let is_permitted = setting.is_some_and(|entry| entry.permits(old, new));
                if key != EXAMPLE && !is_permitted {
                    self.record(format!("{path}.{}", shown(key)));
                }
            }
        }
    }
}
