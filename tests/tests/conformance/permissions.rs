//! Who may set which field: the generated page, and a decision about every key of Knative's
//! released ConfigMaps. Unit tests of `rules::customize` have the fields of the definitions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use knative_operator_rules::customize::{Entry, config_maps, setting};
use knative_operator_rules::short;
use knative_operator_shared::api::Component;
use knative_operator_shared::yaml;
use knative_operator_tests::{releases, tools};
use serde_json::Value;

use super::{operator, outcome};

/// Folders of the releases of a component.
const FOLDERS: [(Component, &[&str]); 2] = [
    (Component::Serving, &["knative-serving", "ingress", "security-guard"]),
    (Component::Eventing, &["knative-eventing", "eventing-source"]),
];
/// Key with the documentation of a ConfigMap.
const EXAMPLE: &str = "_example";

#[test]
fn documented_permissions_are_up_to_date() {
    let file = tools::project().join("docs/operate/permissions.md");
    let text = outcome(&operator(&["permissions"])).unwrap();
    let stale = "docs/operate/permissions.md is stale: run `make generate`";
    assert_eq!(fs::read_to_string(file).unwrap(), text, "{stale}");
}

/// The YAML files below `folder`.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let files = entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] });
    files.filter(|path| path.extension().is_some_and(|extension| extension == "yaml")).collect()
}

/// The keys of `map`: those in its data, and those that its documentation has.
fn keys(map: &Value) -> BTreeSet<String> {
    let data = map["data"].as_object().into_iter().flatten();
    let own = data.map(|(key, _)| key.as_str()).filter(|key| *key != EXAMPLE);
    let example = map["data"][EXAMPLE].as_str().unwrap_or_default();
    let lines = example.lines().filter_map(|line| Some(line.split_once(':')?.0));
    let is_key =
        |text: &&str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"-._".contains(&b));
    own.chain(lines.filter(is_key)).map(str::to_owned).collect()
}

/// The keys of the ConfigMaps of `component` in all releases, by their names.
fn released(folders: &[&str]) -> BTreeMap<String, BTreeSet<String>> {
    let releases = releases::best().dir;
    let mut maps = BTreeMap::<String, BTreeSet<String>>::new();
    for file in folders.iter().flat_map(|folder| files(&releases.join(folder))) {
        let text = fs::read_to_string(&file).unwrap();
        // Only ConfigMaps are parsed, because that takes time.
        let is_map = |document: &&str| document.lines().any(|line| line.trim_end() == "kind: ConfigMap");
        for document in text.split("\n---").filter(is_map) {
            let map: Value = yaml::parse(document).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
            let name = map["metadata"]["name"].as_str().unwrap().to_owned();
            maps.entry(name).or_default().extend(keys(&map));
        }
    }
    maps
}

/// The name of a ConfigMap in the tables.
fn table_name(name: &str) -> &str {
    name.strip_prefix("config-").unwrap_or(name)
}

#[test]
fn every_key_of_released_config_maps_is_decided() {
    let mut all = BTreeSet::new();
    for (component, folders) in FOLDERS {
        let maps = released(folders);
        assert!(maps.len() > 15, "{component}: {:?}", maps.keys());
        let tables: BTreeSet<&str> = config_maps(component).map(|map| map.name).collect();
        for (name, keys) in &maps {
            let table = table_name(name);
            let undecided: Vec<_> = keys.iter().filter(|key| setting(component, table, key).is_none()).collect();
            assert!(undecided.is_empty(), "{name}: add to shared/rules/src/customize, with a reason: {undecided:?}");
            // A spec may omit the first seven characters of each name.
            let alias = short(name).filter(|_| table == name);
            assert!(alias.is_none_or(|alias| !tables.contains(alias)), "{name} is like another ConfigMap");
            all.extend(keys.iter().map(|key| (table.to_owned(), key.clone())));
        }
        assert!(setting(component, "autoscaler", "invented").is_none());
    }
    // The tables have no key that Knative doesn't have: it would be misspelled.
    for map in Component::ALL.into_iter().flat_map(config_maps) {
        for key in map.entries.iter().flat_map(Entry::names).filter(|key| !key.ends_with('*')) {
            let is_released = all.contains(&(map.name.to_owned(), key.to_owned()));
            assert!(is_released, "no release has the key {key} of ConfigMap {}", map.name);
        }
    }
}
