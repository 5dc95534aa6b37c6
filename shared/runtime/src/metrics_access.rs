//! Who may read metrics: users whose token the API server knows (TokenReview), with the verb `get`
//! for the path `/metrics` (SubjectAccessReview), as in controller-runtime.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use k8s_openapi::api::authorization::v1::{NonResourceAttributes, SubjectAccessReviewSpec};
use kube::Client;
use lru::LruCache;
use tokio::sync::Semaphore;

use crate::{access, error_text};

/// Maximum number of tokens that are kept, of those that may read metrics and of others.
const MAX_TOKENS: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// Time for which an answer is valid.
const MAX_AGE: Duration = Duration::from_secs(30);
/// Time limit of the requests to the API server.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of tokens about which the API server is asked at the same time, of those that
/// might read metrics before and of others. Everybody who reaches the port can send some.
const MAX_QUESTIONS: usize = 4;
/// Minimum interval of log messages about failures.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Decides who may read metrics. Clones share recent answers.
#[derive(Clone)]
pub struct MetricsAccess {
    client: Client,
    answers: Arc<Mutex<Answers>>,
    questions: Arc<Semaphore>,
    /// Those about tokens that might read metrics before: they don't wait for the others.
    renewals: Arc<Semaphore>,
}

/// Recent answers. No number of other tokens displaces one that may read metrics.
struct Answers {
    allowed: LruCache<String, Instant>,
    refused: LruCache<String, (Instant, StatusCode)>,
    /// When a failure was logged.
    logged: Option<Instant>,
}

impl Answers {
    fn of(&mut self, token: &str) -> Option<StatusCode> {
        if self.allowed.get(token).is_some_and(|asked| asked.elapsed() < MAX_AGE) {
            return Some(StatusCode::OK);
        }
        self.refused.get(token).filter(|(asked, _)| asked.elapsed() < MAX_AGE).map(|(_, status)| *status)
    }

    fn add(&mut self, token: String, status: StatusCode) {
        let now = Instant::now();
        if status == StatusCode::OK {
            self.refused.pop(&token);
            self.allowed.put(token, now);
        } else {
            self.allowed.pop(&token);
            self.refused.put(token, (now, status));
        }
    }

    /// Whether a failure is logged now.
    fn is_logged(&mut self) -> bool {
        let is_due = self.logged.is_none_or(|logged| logged.elapsed() >= LOG_INTERVAL);
        if is_due {
            self.logged = Some(Instant::now());
        }
        is_due
    }
}

impl MetricsAccess {
    /// Asks with `client`.
    pub fn new(client: Client) -> Self {
        let (allowed, refused) = (LruCache::new(MAX_TOKENS), LruCache::new(MAX_TOKENS));
        let answers = Arc::new(Mutex::new(Answers { allowed, refused, logged: None }));
        let semaphore = || Arc::new(Semaphore::new(MAX_QUESTIONS));
        Self { client, answers, questions: semaphore(), renewals: semaphore() }
    }

    /// Answers requests without permission instead of `next`.
    pub async fn check(State(access): State<Self>, request: Request, next: Next) -> Response {
        let Some(token) = bearer_token(request.headers()).map(str::to_owned) else {
            return refuse(StatusCode::UNAUTHORIZED);
        };
        match access.answer(token).await {
            StatusCode::OK => next.run(request).await,
            status => refuse(status),
        }
    }

    async fn answer(&self, token: String) -> StatusCode {
        let answers = || self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let (known, was_allowed) = {
            let mut answers = answers();
            (answers.of(&token), answers.allowed.contains(&token))
        };
        if let Some(status) = known {
            return status;
        }
        let asked = async {
            // They are never closed.
            let turns = if was_allowed { &self.renewals } else { &self.questions };
            let _turn = turns.acquire().await;
            self.ask(&token).await
        };
        match tokio::time::timeout(TIMEOUT, asked).await {
            Ok(Ok(status)) => {
                answers().add(token, status);
                status
            }
            Ok(Err(error)) => {
                let is_logged = answers().is_logged();
                if is_logged {
                    tracing::warn!(error = error_text(&error), "failed to check who may read metrics");
                }
                StatusCode::SERVICE_UNAVAILABLE
            }
            Err(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    async fn ask(&self, token: &str) -> kube::Result<StatusCode> {
        let Some(user) = access::user_of(&self.client, token).await? else { return Ok(StatusCode::UNAUTHORIZED) };
        let metrics = NonResourceAttributes { path: Some("/metrics".to_owned()), verb: Some("get".to_owned()) };
        let question = SubjectAccessReviewSpec {
            user: user.username,
            uid: user.uid,
            groups: user.groups,
            extra: user.extra,
            non_resource_attributes: Some(metrics),
            ..SubjectAccessReviewSpec::default()
        };
        let is_allowed = access::is_allowed(&self.client, question).await?;
        Ok(if is_allowed { StatusCode::OK } else { StatusCode::FORBIDDEN })
    }
}

fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(header::AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    Some(token.trim()).filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

fn refuse(status: StatusCode) -> Response {
    let text = match status {
        StatusCode::UNAUTHORIZED => "send a valid token of a ServiceAccount: Authorization: Bearer TOKEN\n",
        StatusCode::FORBIDDEN => {
            "the user needs the verb get for /metrics: ClusterRole knative-operator-metrics-reader\n"
        }
        _ => "the API server can't be asked who may read metrics; try again\n",
    };
    (status, text).into_response()
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use axum::http::Response as HttpResponse;
    use http::Request as HttpRequest;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// An API server that knows one of all tokens, and the number of its requests.
    fn api_server() -> (Client, Arc<AtomicUsize>) {
        let requests = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&requests);
        let service = tower::service_fn(move |request: HttpRequest<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                let is_review = request.uri().path().ends_with("tokenreviews");
                let body = request.into_body().collect_bytes().await.unwrap();
                let is_known = String::from_utf8_lossy(&body).contains("\"good\"");
                let status = if is_review {
                    json!({"authenticated": is_known, "user": {"username": "prometheus"}})
                } else {
                    json!({"allowed": true})
                };
                let answer = json!({"metadata": {}, "spec": {}, "status": status});
                Ok::<_, Infallible>(HttpResponse::new(Body::from(answer.to_string().into_bytes())))
            }
        });
        (Client::new(service, "default"), requests)
    }

    #[tokio::test]
    async fn tokens_of_others_displace_none_that_may_read_metrics() {
        let (client, requests) = api_server();
        let access = MetricsAccess::new(client);
        assert_eq!(access.answer("good".to_owned()).await, StatusCode::OK);
        for number in 0..=MAX_TOKENS.get() {
            assert_eq!(access.answer(format!("bad-{number}")).await, StatusCode::UNAUTHORIZED);
        }
        let before = requests.load(Ordering::Relaxed);
        assert_eq!(access.answer("good".to_owned()).await, StatusCode::OK);
        assert_eq!(requests.load(Ordering::Relaxed), before);
    }

    #[tokio::test]
    async fn token_that_might_read_metrics_before_waits_for_no_others() {
        let access = MetricsAccess::new(api_server().0);
        let old = Instant::now().checked_sub(MAX_AGE).unwrap();
        access.answers.lock().unwrap().allowed.put("good".to_owned(), old);
        let _others = access.questions.acquire_many(4).await.unwrap();
        assert_eq!(access.answer("good".to_owned()).await, StatusCode::OK);
    }

    #[test]
    fn failures_are_logged_from_time_to_time() {
        let (allowed, refused) = (LruCache::new(MAX_TOKENS), LruCache::new(MAX_TOKENS));
        let mut answers = Answers { allowed, refused, logged: None };
        assert_eq!([answers.is_logged(), answers.is_logged()], [true, false]);
    }
}
