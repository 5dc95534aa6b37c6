//! Asks the API server whether the user of a request may target the cluster, change the fields that
//! it does, and change what approvals protect: the operator acts with its own permissions on every
//! cluster, so it must not do for a user what an administrator did not permit.

mod answer;
mod cache;
mod questions;
mod reviewer;
mod rules;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use knative_operator_rules::{Rule, Violation};
use kube::Client;

use crate::approval::UNAVAILABLE;
use crate::fleet;
use crate::metrics::Metrics;
use crate::request::Request;
use crate::review::Refusal;
use crate::turns::Turns;
use tokio::task::JoinError;
use tokio::time::Instant;

use knative_operator_rules::authorization::questions::Question;
pub use questions::write;
use reviewer::Reviewer;

/// Time limit of all questions about one request. The API server waits 10 s for the webhook. On a
/// machine with too much to do, it takes seconds to answer questions itself.
const TIMEOUT: Duration = Duration::from_secs(4);

/// What happens to a request of a user without permission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// It is refused.
    #[default]
    Enforce,
    /// It is admitted with a warning.
    Warn,
    /// Nobody is asked.
    Off,
}

/// Authorizes requests. Clones share the cache.
#[derive(Clone)]
pub struct Authorizer {
    /// Users who need no permission.
    exempt: Arc<[String]>,
    /// `None` asks nobody.
    inner: Option<Arc<Inner>>,
    /// Whether the hub itself is a target.
    allows_local: bool,
}

struct Inner {
    is_enforced: bool,
    reviewer: Reviewer,
    /// Fleets whose questions are looked for at the same time.
    fleets: Turns,
}

impl Authorizer {
    /// Authorizes requests of all users but `exempt`. `allows_local`: whether the hub itself is a
    /// target.
    pub fn new(mode: Mode, allows_local: bool, exempt: Vec<String>, client: Client, metrics: Metrics) -> Self {
        let reviewer = Reviewer::new(client, metrics);
        let inner = Inner { is_enforced: mode == Mode::Enforce, reviewer, fleets: Turns::new() };
        Self { exempt: exempt.into(), inner: (mode != Mode::Off).then(|| Arc::new(inner)), allows_local }
    }

    /// Asks nobody.
    #[cfg(test)]
    pub fn off() -> Self {
        Self { exempt: Arc::new([]), inner: None, allows_local: true }
    }

    /// Whether nobody asks about the user of `request`.
    pub fn is_exempt(&self, request: &Request) -> bool {
        self.exempt.contains(&request.user_info.username)
    }

    /// Violations of `request` by its user.
    pub async fn check(&self, request: &Request) -> Vec<Violation> {
        if !self.allows_local && questions::is_new_and_local(request) {
            return vec![rules::no_local_target()];
        }
        let Some(inner) = &self.inner else { return Vec::new() };
        let user = &request.user_info;
        if self.is_exempt(request) {
            return Vec::new();
        }
        let Ok(questions) = inner.questions(request).await else {
            return vec![rules::UNKNOWN.at("spec", "cannot be compared with the stored one", "try again")];
        };
        if questions.is_empty() {
            return Vec::new();
        }
        let deadline = Instant::now() + TIMEOUT;
        let answers = questions.iter().map(|question| inner.reviewer.ask(user, &question.permission, deadline));
        let answers = join_all(answers).await;
        let asked = questions.iter().zip(answers);
        let mut violations: Vec<Violation> =
            asked.filter_map(|(question, answer)| rules::violation(user, question, answer)).collect();
        if !inner.is_enforced {
            violations.iter_mut().for_each(rules::warn);
        }
        violations
    }
}

impl Inner {
    /// All questions about `request`. Those about a fleet, whose overrides are compared in pairs,
    /// are found one after another on another thread, so that other reviews don't wait.
    async fn questions(&self, request: &Request) -> Result<Vec<Question>, JoinError> {
        if !fleet::is_fleet(request) {
            return Ok(questions::about(request));
        }
        let (namespace, request) = (request.namespace.clone(), request.clone());
        self.fleets.run(&namespace, move || questions::about(&request)).await
    }
}

/// Why a request with `violations` is refused.
pub fn refusal(violations: &[Violation]) -> Refusal {
    let mut errors = violations.iter().filter(|violation| violation.is_error()).map(|violation| violation.rule);
    let is_unknown = |rule: &Rule| [&rules::UNKNOWN, &UNAVAILABLE].contains(&rule);
    if errors.clone().any(|rule| !rules::ALL.contains(&rule) && !is_unknown(rule)) {
        Refusal::Invalid
    } else if errors.any(is_unknown) {
        Refusal::Unavailable
    } else {
        Refusal::Forbidden
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn api_server_waits_longer_than_the_webhook_asks() {
        let chart = include_str!("../../../charts/knative-operator/templates/webhook-configurations.yaml");
        let seconds = chart.lines().filter_map(|line| line.trim().strip_prefix("timeoutSeconds: ")?.parse().ok());
        let limits: Vec<Duration> = seconds.map(Duration::from_secs).collect();
        assert_eq!(limits.len(), 2, "{limits:?}");
        // A review asks, and reads once.
        assert!(limits.iter().all(|limit| *limit > 2 * TIMEOUT), "{limits:?}");
    }
}
