//! Asks the API server, by SubjectAccessReview.

use std::time::Duration;

use knative_operator_rules::authorization::permission::Permission;
use knative_operator_runtime::backoff::Backoff;
use knative_operator_runtime::queues::Queues;
use knative_operator_runtime::rarely::Rarely;
use knative_operator_runtime::{access, error_text};
use kube::Client;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::answer::Answer;
use super::cache::Cache;
use crate::metrics::{Metrics, Source};
use knative_operator_rules::authorization::author::User;

/// Maximum number of requests in progress.
const MAX_REQUESTS: usize = 64;
/// Maximum number of requests in progress or in the queue about one user. A fleet with many
/// namespaces has hundreds of questions.
const MAX_OF_USER: usize = MAX_REQUESTS / 2;
/// Start of the names of ServiceAccounts; their namespace and name follow.
const SERVICE_ACCOUNT: &str = "system:serviceaccount:";
/// Time between a failed request and the next.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(50), Duration::from_millis(400));

/// Asks the API server, and keeps its answers for a few seconds.
pub struct Reviewer {
    client: Client,
    requests: Semaphore,
    users: Queues,
    cache: Cache,
    metrics: Metrics,
    /// When a failure was logged: users decide how many there are while the API server doesn't
    /// answer.
    failures: Rarely,
}

impl Reviewer {
    /// Asks with `client`.
    pub fn new(client: Client, metrics: Metrics) -> Self {
        let (requests, users) = (Semaphore::new(MAX_REQUESTS), Queues::new(MAX_OF_USER));
        Self { client, requests, users, cache: Cache::new(), metrics, failures: Rarely::default() }
    }

    /// Whether `user` has `permission`; unknown after `deadline`.
    pub async fn ask(&self, user: &User, permission: &Permission, deadline: Instant) -> Answer {
        let entry = self.cache.entry(user, permission);
        let source = if entry.allowed.initialized() { Source::Cache } else { Source::ApiServer };
        let allowed = entry.allowed.get_or_try_init(|| self.request(user, permission));
        let answer = match tokio::time::timeout_at(deadline, allowed).await {
            Ok(Ok(true)) => Answer::Allowed,
            Ok(Ok(false)) => Answer::Denied,
            Ok(Err(())) | Err(_) => Answer::Unknown,
        };
        let result = match answer {
            Answer::Allowed => "allowed",
            Answer::Denied => "denied",
            Answer::Unknown => "error",
        };
        self.metrics.count_authorization(source, result);
        answer
    }

    /// Asks until the API server answers. The caller limits the time.
    async fn request(&self, user: &User, permission: &Permission) -> Result<bool, ()> {
        let mut failures = 0;
        loop {
            let error = match self.request_once(user, permission).await {
                Ok(is_allowed) => return Ok(is_allowed),
                Err(error) => error,
            };
            self.log(&error);
            if !is_transient(&error) {
                return Err(());
            }
            failures += 1;
            tokio::time::sleep(BACKOFF.after(failures)).await;
        }
    }

    /// Logs `error`, if none was logged lately; whether it did.
    fn log(&self, error: &kube::Error) -> bool {
        let is_due = self.failures.is_due();
        if is_due {
            tracing::warn!(error = error_text(error), "failed to check a permission of a user");
        }
        is_due
    }

    async fn request_once(&self, user: &User, permission: &Permission) -> kube::Result<bool> {
        let _place = self.users.enter(queue_of(&user.username)).await;
        // The semaphore is never closed.
        let _permit = self.requests.acquire().await.ok();
        let started = Instant::now();
        let answer = access::is_allowed(&self.client, user.question(permission)).await;
        self.metrics.observe_authorization(started.elapsed());
        answer
    }
}

/// The name of the queue of a user. The ServiceAccounts of a namespace share one: who may create or
/// impersonate them has any number.
fn queue_of(username: &str) -> &str {
    let of_namespace = username.rsplit_once(':').filter(|_| username.starts_with(SERVICE_ACCOUNT));
    of_namespace.map_or(username, |(namespace, _)| namespace)
}

/// Whether the API server may answer when it is asked again.
fn is_transient(error: &kube::Error) -> bool {
    match error {
        kube::Error::Api(status) => status.code == 429 || status.code >= 500,
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::pin::pin;

    use axum::http::{Request, Response};
    use futures::future::{Either, join_all, select};
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn failures_are_logged_from_time_to_time() {
        let service = tower::service_fn(|_: Request<Body>| async {
            Ok::<_, Infallible>(Response::new(Body::from(Vec::<u8>::new())))
        });
        let reviewer = Reviewer::new(Client::new(service, "default"), Metrics::registered().0);
        let error = kube::Error::LinesCodecMaxLineLengthExceeded;
        assert_eq!([reviewer.log(&error), reviewer.log(&error)], [true, false]);
    }

    #[tokio::test]
    async fn user_with_many_questions_keeps_no_other_waiting() {
        // It answers nothing about the ServiceAccounts of one namespace.
        let service = tower::service_fn(|request: Request<Body>| async move {
            let body = request.into_body().collect_bytes().await.unwrap();
            let mut review: serde_json::Value = serde_json::from_slice(&body).unwrap();
            let user = review["spec"]["user"].as_str().unwrap_or_default();
            if user.starts_with("system:serviceaccount:many:") {
                std::future::pending::<()>().await;
            }
            review["status"] = json!({"allowed": true});
            Ok::<_, Infallible>(Response::new(Body::from(review.to_string().into_bytes())))
        });
        let reviewer = Reviewer::new(Client::new(service, "default"), Metrics::registered().0);
        let user = |name: &str| User { username: name.to_owned(), ..User::default() };
        let many = [user("system:serviceaccount:many:a"), user("system:serviceaccount:many:b")];
        let (one, deadline) = (user("system:serviceaccount:one:a"), Instant::now() + Duration::from_secs(60));
        let permissions: Vec<_> = (0..200).map(|number| Permission::to_use("n", &number.to_string())).collect();
        let questions = many.iter().flat_map(|user| permissions.iter().map(move |permission| (user, permission)));
        let waiting = pin!(join_all(questions.map(|(user, permission)| reviewer.ask(user, permission, deadline))));
        let other = pin!(reviewer.ask(&one, &permissions[0], deadline));
        match select(waiting, other).await {
            Either::Right((answer, _)) => assert_eq!(answer, Answer::Allowed),
            Either::Left(_) => panic!("the other waited for all questions of the user"),
        }
    }

    #[test]
    fn service_accounts_of_a_namespace_share_a_queue() {
        for (username, expected) in [
            ("jane", "jane"),
            ("oidc:jane", "oidc:jane"),
            ("system:serviceaccount:a:x", "system:serviceaccount:a"),
            ("system:serviceaccount:a:y", "system:serviceaccount:a"),
            ("system:serviceaccount:b:x", "system:serviceaccount:b"),
        ] {
            assert_eq!(queue_of(username), expected);
        }
    }

    #[test]
    fn only_transient_errors_are_tried_again() {
        let of = |code: u16| kube::Error::Api(Box::new(kube::core::Status { code, ..Default::default() }));
        for (code, expected) in [(401, false), (403, false), (422, false), (429, true), (500, true), (504, true)] {
            assert_eq!(is_transient(&of(code)), expected, "{code}");
        }
        assert!(is_transient(&kube::Error::LinesCodecMaxLineLengthExceeded));
    }
}
