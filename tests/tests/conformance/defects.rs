//! The table of the Go operator's defects: a test with its real processes reproduces each of them,
//! and the tests of this operator that the table names exist.

use std::collections::BTreeSet;

use knative_operator_tests::tools::project;

/// Modules of the tests that reproduce them.
const MODULES: [&str; 2] = ["defects", "defects_state"];

fn read(path: &str) -> String {
    std::fs::read_to_string(project().join(path)).unwrap()
}

/// The cells of each row.
fn rows() -> Vec<Vec<String>> {
    let document = read("docs/user/compatibility.md");
    let (_, table) = document.split_once("\n## Defects of the Go operator\n").unwrap();
    let is_row =
        |line: &&str| line.strip_prefix("| ").is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()
    };
    table.lines().filter(is_row).map(cells).collect()
}

/// The numbers of the rows that tests print.
fn printed(source: &str) -> BTreeSet<usize> {
    source.split(" row(").skip(1).filter_map(|rest| rest.split(',').next()?.parse().ok()).collect()
}

#[test]
fn each_defect_is_reproduced_by_the_test_that_its_row_names() {
    let rows = rows();
    for (number, row) in (1_usize..).zip(&rows) {
        assert_eq!(row[0], number.to_string(), "{row:?}");
        let (module, test) =
            row[2].trim_matches('`').strip_prefix("e2e ").and_then(|name| name.split_once("::")).unwrap();
        let source = read(&format!("tests/tests/e2e/{module}.rs"));
        let start = format!("fn {test}");
        let body = source.split("#[test]\n").find(|body| body.starts_with(&start)).unwrap_or_default();
        assert!(printed(body).contains(&number), "{module}::{test} doesn't reproduce row {number}");
    }
    let reproduced: BTreeSet<usize> =
        MODULES.iter().flat_map(|module| printed(&read(&format!("tests/tests/e2e/{module}.rs")))).collect();
    assert!(!rows.is_empty());
    assert_eq!(
        reproduced,
        (1..=rows.len()).collect::<BTreeSet<_>>(),
        "tests reproduce these defects, and the table has those"
    );
}

#[test]
fn tests_in_the_table_of_defects_exist() {
    for row in rows() {
        for name in row[4].split('`').skip(1).step_by(2) {
            let places = if let Some((binary, module)) = name.split_once(' ') {
                [format!("tests/tests/{binary}/{module}.rs"), format!("tests/tests/{binary}/{module}/mod.rs")]
            } else {
                let (package, module) = name.split_once("::").unwrap();
                [format!("operator/{package}/src/{module}.rs"), format!("operator/src/{package}/{module}.rs")]
            };
            assert!(places.iter().any(|place| project().join(place).is_file()), "row {}: {name}", row[0]);
        }
    }
}
