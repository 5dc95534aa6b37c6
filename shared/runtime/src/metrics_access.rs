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

use crate::rarely::Rarely;
use crate::{access, error_text};

/// Maximum number of tokens that are kept, of those that may read metrics and of others.
const MAX_TOKENS: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// Time for which an answer is valid.
const MAX_AGE: Duration = Duration::from_secs(30);
/// Time limit of the requests to the API server.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum number of tokens about which the API server is asked at the same time. Everybody who
/// reaches the port can send some.
const MAX_QUESTIONS: usize = 4;
/// Maximum number of requests that ask it, or wait for their turn, in memory.
const MAX_WAITING: usize = 64;

/// Decides who may read metrics. Clones share recent answers.
#[derive(Clone)]
pub struct MetricsAccess {
    client: Client,
    answers: Arc<Mutex<Answers>>,
    /// For tokens that could read metrics when that was asked last: others delay none of them.
    of_readers: Arc<Turns>,
    of_others: Arc<Turns>,
    failures: Arc<Rarely>,
}

/// Turns to ask the API server.
struct Turns {
    places: Semaphore,
    questions: Semaphore,
}

impl Turns {
    fn new() -> Arc<Self> {
        Arc::new(Self { places: Semaphore::new(MAX_WAITING), questions: Semaphore::new(MAX_QUESTIONS) })
    }
}

/// Recent answers. No number of other tokens displaces one that may read metrics.
struct Answers {
    allowed: LruCache<String, Instant>,
    refused: LruCache<String, (Instant, StatusCode)>,
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
}

impl MetricsAccess {
    /// Asks with `client`.
    pub fn new(client: Client) -> Self {
        let (allowed, refused) = (LruCache::new(MAX_TOKENS), LruCache::new(MAX_TOKENS));
        let answers = Arc::new(Mutex::new(Answers { allowed, refused }));
        Self { client, answers, of_readers: Turns::new(), of_others: Turns::new(), failures: Arc::default() }
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
        let (known, is_of_reader) = {
            let mut answers = answers();
            (answers.of(&token), answers.allowed.contains(&token))
        };
        if let Some(status) = known {
            return status;
        }
        let turns = if is_of_reader { &self.of_readers } else { &self.of_others };
        let Ok(_place) = turns.places.try_acquire() else { return StatusCode::SERVICE_UNAVAILABLE };
        let asked = async {
            // It is never closed.
            let _turn = turns.questions.acquire().await;
            self.ask(&token).await
        };
        match tokio::time::timeout(TIMEOUT, asked).await {
            Ok(Ok(status)) => {
                answers().add(token, status);
                status
            }
            Ok(Err(error)) => {
                if self.failures.is_due() {
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

    /// An API server that knows one of all tokens, and never answers about some; counts requests.
    fn access(requests: &Arc<AtomicUsize>) -> MetricsAccess {
        let counted = Arc::clone(requests);
        let service = tower::service_fn(move |request: HttpRequest<Body>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                let is_review = request.uri().path().ends_with("tokenreviews");
                let body = request.into_body().collect_bytes().await.unwrap();
                let text = String::from_utf8_lossy(&body);
                if text.contains("\"slow-") {
                    std::future::pending::<()>().await;
                }
                let status = if is_review {
                    json!({"authenticated": text.contains("\"good\""), "user": {"username": "prometheus"}})
                } else {
                    json!({"allowed": true})
                };
                let answer = json!({"metadata": {}, "spec": {}, "status": status});
                Ok::<_, Infallible>(HttpResponse::new(Body::from(answer.to_string().into_bytes())))
            }
        });
        MetricsAccess::new(Client::new(service, "default"))
    }

    #[tokio::test]
    async fn tokens_of_others_displace_none_that_may_read_metrics() {
        let requests = Arc::default();
        let access = access(&requests);
        assert_eq!(access.answer("good".to_owned()).await, StatusCode::OK);
        for number in 0..=MAX_TOKENS.get() {
            assert_eq!(access.answer(format!("bad-{number}")).await, StatusCode::UNAUTHORIZED);
        }
        let before = requests.load(Ordering::Relaxed);
        assert_eq!(access.answer("good".to_owned()).await, StatusCode::OK);
        assert_eq!(requests.load(Ordering::Relaxed), before);
    }

    #[tokio::test]
    async fn flood_of_tokens_is_refused_and_delays_none_that_may_read_metrics() {
        let access = access(&Arc::default());
        let good = || access.answer("good".to_owned());
        assert_eq!(good().await, StatusCode::OK);
        let mut flood = tokio::task::JoinSet::new();
        for number in 0..2 * MAX_WAITING {
            let access = access.clone();
            flood.spawn(async move { access.answer(format!("slow-{number}")).await });
        }
        let mut refused = 0;
        for _ in 0..100 {
            tokio::task::yield_now().await;
            while let Some(status) = flood.try_join_next() {
                assert_eq!(status.unwrap(), StatusCode::SERVICE_UNAVAILABLE);
                refused += 1;
            }
        }
        // The others wait for the API server.
        assert_eq!((refused, flood.len()), (MAX_WAITING, MAX_WAITING));
        // It is asked again.
        let old = Instant::now().checked_sub(MAX_AGE).unwrap();
        access.answers.lock().unwrap().allowed.put("good".to_owned(), old);
        assert_eq!(good().await, StatusCode::OK);
    }
}
