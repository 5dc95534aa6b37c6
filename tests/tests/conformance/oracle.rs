//! Compares rendered objects with those of the Go operator (`../shared/oracle` and
//! `../shared/patches`), by the oracle's own comparison. Skipped without these folders or Python.

use std::io::Write;
use std::process::Command;

use knative_operator_tests::tools::project;
use serde_json::{Value, json};

use super::{command, outcome};

#[test]
fn rendered_objects_equal_go_operators() {
    compare("oracle", 52);
}

#[test]
fn patched_objects_equal_go_operators() {
    compare("patches", 50);
}

/// Renders the cases in `../shared/FOLDER`, of which there are at least `minimum`, and compares
/// them.
fn compare(folder: &str, minimum: usize) {
    let shared = project().join("../shared");
    let folder = shared.join(folder);
    let python = Command::new("python3").arg("--version").output().is_ok_and(|o| o.status.success());
    if !folder.is_dir() || !python {
        // Not `eprintln!`, whose output a passing test hides.
        let _ = writeln!(std::io::stderr(), "skipped: {} or python3 is missing", folder.display());
        return;
    }
    let rendered = tempfile::tempdir().unwrap();
    let mut count = 0;
    for case in std::fs::read_dir(folder.join("cases")).unwrap() {
        let path = case.unwrap().path();
        let output = command()
            .args(["render", "-o", "json", "-f"])
            .arg(&path)
            .arg("--releases")
            .arg(shared.join("releases"))
            .output()
            .unwrap();
        let list = match outcome(&output) {
            Ok(list) => serde_json::from_str(&list).unwrap(),
            Err(error) => json!({"error": error}),
        };
        let list: Value = list;
        std::fs::write(rendered.path().join(path.with_extension("json").file_name().unwrap()), list.to_string())
            .unwrap();
        count += 1;
    }
    assert!(count >= minimum, "there are only {count} cases");
    let compare = shared.join("oracle/compare.py");
    let output =
        Command::new("python3").arg(compare).arg(folder.join("expected")).arg(rendered.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let different: Vec<_> = text.lines().filter(|l| !l.starts_with("ok")).collect();
    assert!(
        output.status.success() && text.ends_with(&format!("{count} of {count} cases equal\n")),
        "{}",
        different.join("\n")
    );
}
