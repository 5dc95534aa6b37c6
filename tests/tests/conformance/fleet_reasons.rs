//! docs/user/fleet.md lists the reasons that the operator writes to the conditions of a fleet.

use std::collections::{BTreeMap, BTreeSet};

use knative_operator_tests::project;

/// Types of conditions that are not reasons, too.
const TYPES: [&str; 4] = ["Ready", "Progressing", "RemovalPending", "RemovalBlocked"];

/// The code in `file`, without its tests, which come last.
fn code(file: &str) -> String {
    let text = std::fs::read_to_string(project().join("operator").join(file)).unwrap();
    text.split("#[cfg(test)]").next().unwrap_or_default().to_owned()
}

/// The functions in `file` by name.
fn functions(file: &str) -> BTreeMap<String, String> {
    let code = code(file);
    let all = code.split("\nfn ").flat_map(|part| part.split("\npub fn ")).skip(1);
    let name = |function: &str| function.split(['(', '<']).next().unwrap_or_default().to_owned();
    all.map(|function| (name(function), function.to_owned())).collect()
}

/// The strings in `code` that are reasons.
fn reasons(code: &str) -> impl Iterator<Item = &str> {
    let is_reason = |text: &&str| {
        text.starts_with(|c: char| c.is_ascii_uppercase())
            && text.chars().all(|c| c.is_ascii_alphabetic())
            && !TYPES.contains(text)
    };
    code.split('"').skip(1).step_by(2).filter(is_reason)
}

#[test]
fn guide_lists_all_reasons_of_ready_and_progressing() {
    let mut functions_by_name = functions("fleet/src/conditions.rs");
    functions_by_name.extend(functions("fleet/src/status.rs"));
    // What is not stored is a reason of both.
    let withheld = code("src/controller/fleets/withheld.rs");
    let guide = std::fs::read_to_string(project().join("docs/user/fleet.md")).unwrap();
    for type_ in ["Ready", "Progressing"] {
        let (literal, start) = (format!("\"{type_}\""), format!("| condition `{type_}` |"));
        // The callers of `standing` have the reasons. A fleet that is rolling out is not Ready, for
        // the reason of Progressing.
        let writes = |name: &str, code: &str| {
            code.contains(&literal) || code.contains("standing(") || type_ == "Ready" && name == "progressing"
        };
        let mut written: BTreeSet<&str> = functions_by_name
            .iter()
            .filter(|(name, code)| writes(name, code))
            .flat_map(|(_, code)| reasons(code))
            .chain(reasons(&withheld))
            .collect();
        if type_ == "Ready" {
            // `RolloutIncomplete` replaces it.
            written.remove("Complete");
        }
        let row = guide.lines().find_map(|line| line.strip_prefix(&start)).unwrap();
        let listed: BTreeSet<&str> = row.split('`').skip(1).step_by(2).collect();
        assert!(written.len() > 10, "{written:?}");
        assert_eq!(written, listed, "{type_}: left: in the sources, right: in docs/user/fleet.md");
    }
}
