//! Compares rendered objects with those of the Go operator (`../shared/oracle`), by the oracle's
//! own comparison. Skipped without the oracle or Python.

use std::io::Write;
use std::process::Command;

use knative_operator_tests::tools::project;
use serde_json::{Value, json};

use super::{command, outcome};

#[test]
fn rendered_objects_equal_go_operators() {
    let shared = project().join("../shared");
    let python = Command::new("python3").arg("--version").output().is_ok_and(|o| o.status.success());
    if !shared.join("oracle").is_dir() || !python {
        // Not `eprintln!`, whose output a passing test hides.
        let _ = writeln!(std::io::stderr(), "skipped: {} or python3 is missing", shared.join("oracle").display());
        return;
    }
    let rendered = tempfile::tempdir().unwrap();
    let mut count = 0;
    for case in std::fs::read_dir(shared.join("oracle/cases")).unwrap() {
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
    assert!(count >= 52, "there are only {count} cases");
    let compare = shared.join("oracle/compare.py");
    let output =
        Command::new("python3").arg(compare).arg(shared.join("oracle/expected")).arg(rendered.path()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let different: Vec<_> = text.lines().filter(|l| !l.starts_with("ok")).collect();
    assert!(
        output.status.success() && text.ends_with(&format!("{count} of {count} cases equal\n")),
        "{}",
        different.join("\n")
    );
}
