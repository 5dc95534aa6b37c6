//! Finds fields and keys in the tables.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use super::entry::{ConfigMap, Entry, Needs};
use super::fields::FIELDS;
use super::{both, eventing, serving};
use knative_operator_shared::api::Component;

/// What a field has of which only some parts need the permission.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    /// Fields.
    Fields,
    /// Items of a list.
    Items,
    /// ConfigMaps with their keys.
    Settings,
}

/// The ConfigMaps of `component`. Some are there twice, with different keys.
pub fn config_maps(component: Component) -> impl Iterator<Item = &'static ConfigMap> + Clone {
    let own = match component {
        Component::Serving => serving::MAPS,
        Component::Eventing => eventing::MAPS,
    };
    own.iter().chain(both::MAPS)
}

/// The entry of `key` in ConfigMap `map`, which is given without `config-`.
pub fn setting(component: Component, map: &str, key: &str) -> Option<&'static Entry> {
    find(config_maps(component).filter(move |own| own.name == map).flat_map(|own| own.entries), key)
}

/// The entries of fields by each of their names. Every review looks for some.
static NAMES: LazyLock<BTreeMap<&'static str, &'static Entry>> = LazyLock::new(|| {
    // In reverse, since the first one counts.
    FIELDS.iter().rev().flat_map(|entry| entry.names().map(move |name| (name, entry))).collect()
});

/// The entries of fields with a pattern among their names.
static PATTERNS: LazyLock<Vec<&'static Entry>> =
    LazyLock::new(|| FIELDS.iter().filter(|entry| entry.names().any(|name| name.ends_with('*'))).collect());

/// The entry of the field `pattern` below `spec`.
pub fn field(pattern: &str) -> Option<&'static Entry> {
    let others = || PATTERNS.iter().find(|entry| entry.has_pattern_for(pattern));
    NAMES.get(pattern).or_else(others).copied()
}

/// The field `name` of the field `pattern`; the deprecated `deployments` is like `workloads`.
pub fn child(pattern: &str, name: &str) -> String {
    match (pattern, name) {
        ("", "deployments") => "workloads".to_owned(),
        ("", name) => name.to_owned(),
        _ => format!("{pattern}.{name}"),
    }
}

/// What the field `pattern` has, if some of it needs no permission.
pub fn below(pattern: &str) -> Option<Below> {
    if pattern == "config" {
        return Some(Below::Settings);
    }
    let from = NAMES.range(pattern..).map_while(|(name, entry)| Some((name.strip_prefix(pattern)?, entry)));
    let mut free = from.filter(|(_, entry)| entry.needs != Needs::Customize);
    free.find_map(|(rest, _)| match rest.as_bytes().first() {
        Some(b'.') => Some(Below::Fields),
        Some(b'[') => Some(Below::Items),
        _ => None,
    })
}

/// The entry with `name`, or else one with a pattern for it.
fn find(entries: impl Iterator<Item = &'static Entry> + Clone, name: &str) -> Option<&'static Entry> {
    let exact = entries.clone().find(|entry| entry.names().any(|own| own == name));
    let mut others = entries;
    exact.or_else(|| others.find(|entry| entry.has_pattern_for(name)))
}
