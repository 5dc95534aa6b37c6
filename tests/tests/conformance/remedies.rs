//! `status`, `wait` and `ui` show the remedies that docs/user/troubleshooting.md has.

use knative_operator_overview::{Names, remedy};
use knative_operator_tests::tools::project;

#[test]
fn remedies_are_those_of_the_documents() {
    let page = std::fs::read_to_string(project().join("docs/user/troubleshooting.md")).unwrap();
    for remedy in remedy::all() {
        // Rows of these conditions have messages, not reasons.
        let reason = Some(remedy.reason).filter(|reason| !["Error", "NotReady"].contains(reason));
        let cell = format!("| {} |", remedy.advice(&Names::default()).general);
        let row = page.lines().find(|line| line.contains(&cell) && reason.is_none_or(|reason| line.contains(reason)));
        assert!(row.is_some(), "{cell} {}", remedy.reason);
    }
}
