//! docs/operate/traces.md lists all log messages at level info and above.

use std::collections::BTreeSet;
use std::path::Path;

use knative_operator_tests::{project, sources};

#[test]
fn documents_list_all_log_messages() {
    let mut messages = BTreeSet::new();
    for folder in sources() {
        collect(&folder, &mut messages);
    }
    let page = std::fs::read_to_string(project().join("docs/operate/traces.md")).unwrap();
    let row = |line: &str| {
        let mut cells = line.strip_prefix("| ")?.split(" | ");
        let (level, message) =
            (cells.next()?.to_owned(), cells.next()?.strip_prefix('`')?.strip_suffix('`')?.to_owned());
        ["info", "warn", "error"].contains(&level.as_str()).then_some((level, message))
    };
    let listed: BTreeSet<_> = page.lines().filter_map(row).collect();
    assert!(messages.len() > 30, "{messages:?}");
    // People search for what is in the log: values are fields.
    let formats: Vec<_> = messages.iter().filter(|(_, message)| message.contains(['{', '}'])).collect();
    assert!(formats.is_empty(), "{formats:?}");
    assert_eq!(messages, listed, "left: in the sources, right: in docs/operate/traces.md");
}

fn collect(folder: &Path, messages: &mut BTreeSet<(String, String)>) {
    for entry in std::fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if path.is_dir() {
            collect(&path, messages);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            // Unit tests come last in a file.
            let code = text.split("#[cfg(test)]").next().unwrap_or_default();
            for level in ["info", "warn", "error"] {
                for call in code.split(&format!("tracing::{level}!(")).skip(1) {
                    messages.insert((
                        level.to_owned(),
                        message(call).unwrap_or_else(|| panic!("{}: {call}", path.display())),
                    ));
                }
            }
        }
    }
}

/// The last string in the arguments at the start of `code` that is no value of a field.
fn message(code: &str) -> Option<String> {
    let (mut depth, mut found, mut before) = (1, None, ' ');
    let mut rest = code.char_indices();
    while let Some((at, letter)) = rest.next() {
        match letter {
            '(' => depth += 1,
            ')' if depth == 1 => break,
            ')' => depth -= 1,
            '"' => {
                let end = code[at + 1..].find('"')? + at + 1;
                if depth == 1 && before != '=' && before != '%' {
                    found = Some(code[at + 1..end].to_owned());
                }
                rest.by_ref().find(|(next, _)| *next == end);
            }
            _ => {}
        }
        if !letter.is_whitespace() {
            before = letter;
        }
    }
    found
}
