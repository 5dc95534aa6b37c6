//! The checks as text.

use knative_operator_shared::text::one_line;

use super::check::{Check, Outcome, Report};
use crate::command::status::Style;
use knative_operator_overview::{Advice, State};

/// The checks of all clusters, and a summary.
pub fn render(reports: &[Report], style: &Style) -> String {
    let mut text = String::new();
    for report in reports {
        text += &style.lines("", "  ", &style.bold(&one_line(&report.cluster)));
        for check in &report.checks {
            text += &line(check, style);
            for advice in check.remedy.iter().flat_map(Advice::lines) {
                text += &style.lines("      ", "        ", &advice);
            }
        }
        text.push('\n');
    }
    text + &summary(reports)
}

fn line(Check { id, finding, .. }: &Check, style: &Style) -> String {
    let state = state(finding.outcome);
    let symbol = style.state(state, style.symbol(state));
    let detail = one_line(&finding.detail);
    style.lines("  ", "      ", &format!("{symbol} {}: {detail}", id.title()))
}

/// The state that is shown in the same way.
fn state(outcome: Outcome) -> State {
    match outcome {
        Outcome::Skipped => State::Pending,
        Outcome::Passed => State::Ready,
        Outcome::Warning => State::Degraded,
        Outcome::Failed => State::Failed,
    }
}

fn summary(reports: &[Report]) -> String {
    let failed = reports.iter().filter(|report| !report.has_passed()).count();
    let noun = if reports.len() == 1 { "cluster" } else { "clusters" };
    format!("{} {noun}: {} passed, {failed} failed\n", reports.len(), reports.len() - failed)
}

#[cfg(test)]
mod tests {
    use super::super::check::{Finding, Id};
    use super::*;

    #[test]
    fn each_check_has_a_line_and_its_remedy() {
        let mut bad = Report::new("fleet-system/a".to_owned());
        bad.add(Id::Profile, Finding::passed("healthy"), None);
        let text = "Raise it, on the cluster: `kubectl describe resourcequota -n n`".to_owned();
        let remedy = Advice { text, general: String::new(), can_recover: true };
        bad.add(Id::Quota, Finding::failed("exceeded\nquota"), Some(remedy));
        bad.add(Id::Clock, Finding::warning("late"), None);
        bad.add(Id::Owner, Finding::skipped("no"), None);
        let mut good = Report::new("fleet-system/b".to_owned());
        good.add(Id::Profile, Finding::passed("healthy"), None);
        let expected = "\
fleet-system/a
  ✔ ClusterProfile: healthy
  ✘ Quota: exceeded quota
      What to do: Raise it, on the cluster:
        kubectl describe resourcequota -n n
  ! Clock: late
  - Owner: no

fleet-system/b
  ✔ ClusterProfile: healthy

2 clusters: 1 passed, 1 failed
";
        assert_eq!(render(&[bad, good], &Style::plain()), expected);
    }
}
