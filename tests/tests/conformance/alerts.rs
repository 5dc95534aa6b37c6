//! Each alert has a section in docs/operate/alerts.md, and a case in which it fires and one in
//! which it doesn't.

use std::collections::BTreeSet;

use knative_operator_tests::project;

/// The rest of each line of `text` that has `mark`, up to `end`.
fn after<'t>(text: &'t str, mark: &str, end: char) -> BTreeSet<&'t str> {
    let rest = |line: &'t str| line.split_once(mark).map(|(_, rest)| rest.split(end).next().unwrap_or_default());
    text.lines().filter_map(rest).collect()
}

#[test]
fn each_alert_has_a_section_and_both_cases() {
    let read = |path: &str| std::fs::read_to_string(project().join(path)).unwrap();
    let (rules, page) = (read("charts/knative-operator/files/alerts.yaml"), read("docs/operate/alerts.md"));
    let alerts = after(&rules, "- alert: ", '\n');
    assert!(alerts.len() >= 21, "{alerts:?}");
    let sections: BTreeSet<&str> = after(&page, "## ", '\n').into_iter().filter(|title| !title.contains(' ')).collect();
    assert_eq!(alerts, sections);
    let anchors: BTreeSet<String> = alerts.iter().map(|alert| alert.to_lowercase()).collect();
    let links: BTreeSet<String> =
        after(&rules, "docs/operate/alerts.md#", '\n').into_iter().map(str::to_owned).collect();
    assert_eq!(anchors, links);
    let cases = read("tests/monitoring/alerts-test.yaml");
    let (silent, firing): (Vec<&str>, Vec<&str>) =
        cases.lines().filter(|line| line.contains("alertname: ")).partition(|line| line.contains("exp_alerts: []"));
    for lines in [silent, firing] {
        assert_eq!(alerts, after(&lines.join("\n"), "alertname: ", ','));
    }
}
