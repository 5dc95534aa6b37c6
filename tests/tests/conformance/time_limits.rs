//! docs/develop/runtime.md lists all constants that are a time.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use knative_operator_tests::{project, sources};

/// How their types begin.
const TYPES: [&str; 4] = ["Duration", "(Duration", "SignedDuration", "Backoff"];

#[test]
fn documents_list_all_time_limits() {
    let mut constants = BTreeSet::new();
    for folder in sources() {
        collect(&folder, &mut constants);
    }
    assert!(constants.len() > 100, "{constants:?}");
    let page = std::fs::read_to_string(project().join("docs/develop/runtime.md")).unwrap();
    let mut listed: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for row in page.lines().filter(|line| line.starts_with('|')) {
        let files = row.split("](/").skip(1).filter_map(|rest| rest.split_once(')')).map(|(file, _)| file);
        for file in files {
            listed.entry(file).or_default().extend(row.split('`').skip(1).step_by(2));
        }
    }
    let is_listed = |file: &str, name: &str| listed.get(file).is_some_and(|names| names.contains(name));
    let missing: Vec<_> = constants.iter().filter(|(file, name)| !is_listed(file, name)).collect();
    assert!(missing.is_empty(), "add a row to docs/develop/runtime.md: {missing:?}");
}

fn collect(folder: &Path, constants: &mut BTreeSet<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, constants);
        } else if path.extension().is_some_and(|extension| extension == "rs") && !is_of_tests(&path) {
            let text = std::fs::read_to_string(&path).unwrap();
            // Unit tests come last in a file.
            let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or_default();
            let names = code.lines().filter_map(|line| {
                let (name, type_) =
                    line.strip_prefix("pub ").unwrap_or(line).strip_prefix("const ")?.split_once(": ")?;
                TYPES.iter().any(|begin| type_.starts_with(begin)).then(|| name.to_owned())
            });
            let file = path.strip_prefix(project()).unwrap().display().to_string();
            constants.extend(names.map(|name| (file.clone(), name)));
        }
    }
}

/// Whether `path` is a module of unit tests.
fn is_of_tests(path: &Path) -> bool {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let root = std::fs::read_to_string(path.with_file_name("lib.rs")).unwrap_or_default();
    stem.ends_with("tests") || root.contains(&format!("#[cfg(test)]\nmod {stem};"))
}
