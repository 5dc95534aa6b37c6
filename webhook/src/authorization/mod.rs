//! Asks the API server whether the user of a request may target the cluster and bring the content
//! that it names: the operator acts with its own permissions on every cluster, so it must not do
//! for a user what an administrator did not permit.

mod cache;
mod permission;
mod questions;
mod reviewer;
mod rules;

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use knative_operator_shared::rules::Violation;
use kube::Client;

use crate::cluster_facts::ClusterFacts;
use crate::metrics::Metrics;
use crate::review::{Refusal, Request, UserInfo};
use tokio::time::Instant;

use permission::{Answer, Permission};
use questions::Question;
use reviewer::Reviewer;

/// Time limit of all questions about one request. The API server waits 5 s for the webhook.
const TIMEOUT: Duration = Duration::from_secs(2);

/// What happens to a request of a user without permission.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Mode {
    /// It is refused.
    Enforce,
    /// It is admitted with a warning.
    #[default]
    Warn,
    /// Nobody is asked.
    Off,
}

/// Authorizes requests. Clones share the cache.
#[derive(Clone)]
pub struct Authorizer(Option<Arc<Inner>>);

struct Inner {
    is_enforced: bool,
    exempt: Vec<String>,
    reviewer: Reviewer,
}

impl Authorizer {
    /// Authorizes requests of all users but `exempt`.
    pub fn new(mode: Mode, exempt: Vec<String>, client: Client, metrics: Metrics) -> Self {
        let reviewer = Reviewer::new(client, metrics);
        let inner = Inner { is_enforced: mode == Mode::Enforce, exempt, reviewer };
        Self((mode != Mode::Off).then(|| Arc::new(inner)))
    }

    /// Asks nobody.
    #[cfg(test)]
    pub fn off() -> Self {
        Self(None)
    }

    /// Violations of `request` by its user.
    pub async fn check(&self, request: &Request, facts: &ClusterFacts) -> Vec<Violation> {
        let Some(inner) = &self.0 else { return Vec::new() };
        let user = &request.user_info;
        if inner.exempt.contains(&user.username) {
            return Vec::new();
        }
        let questions = questions::about(request, facts);
        if questions.is_empty() {
            return Vec::new();
        }
        let deadline = Instant::now() + TIMEOUT;
        let lacking = questions.iter().map(|question| inner.lacking(user, question, deadline));
        let lacking = join_all(lacking).await;
        let mut violations = Vec::new();
        for (question, lacking) in questions.iter().zip(lacking) {
            violations.extend(rules::violations(user, question, &lacking));
        }
        if !inner.is_enforced {
            violations.iter_mut().for_each(rules::warn);
        }
        violations
    }
}

/// Why a request with `violations` is refused.
pub fn refusal(violations: &[Violation]) -> Refusal {
    let mut errors = violations.iter().filter(|violation| violation.is_error()).map(|violation| violation.rule);
    if errors.clone().any(|rule| !rules::ALL.contains(&rule)) {
        Refusal::Invalid
    } else if errors.any(|rule| rule == &rules::UNKNOWN) {
        Refusal::Unavailable
    } else {
        Refusal::Forbidden
    }
}

impl Inner {
    /// The permissions that `user` lacks, if they have neither the permission in `question` nor all
    /// of the others that suffice.
    async fn lacking(&self, user: &UserInfo, question: &Question, deadline: Instant) -> Vec<(Permission, Answer)> {
        let answer = self.reviewer.ask(user, &question.permission, deadline).await;
        if answer == Answer::Allowed {
            return Vec::new();
        }
        if answer == Answer::Unknown || question.or_all_of.is_empty() {
            return vec![(question.permission.clone(), answer)];
        }
        let others = &question.or_all_of;
        let answers = join_all(others.iter().map(|permission| self.reviewer.ask(user, permission, deadline))).await;
        let answers = others.iter().cloned().zip(answers);
        answers.filter(|(_, answer)| *answer != Answer::Allowed).collect()
    }
}
