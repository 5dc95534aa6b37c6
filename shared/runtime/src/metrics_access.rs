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

use crate::{access, error_text};

/// Maximum number of tokens whose answer is kept.
const MAX_TOKENS: NonZeroUsize = NonZeroUsize::new(64).unwrap();
/// Time for which an answer is valid.
const MAX_AGE: Duration = Duration::from_secs(30);
/// Time limit of the requests to the API server.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Decides who may read metrics. Clones share recent answers.
#[derive(Clone)]
pub struct MetricsAccess {
    client: Client,
    answers: Arc<Mutex<LruCache<String, (Instant, StatusCode)>>>,
}

impl MetricsAccess {
    /// Asks with `client`.
    pub fn new(client: Client) -> Self {
        Self { client, answers: Arc::new(Mutex::new(LruCache::new(MAX_TOKENS))) }
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
        let known = answers().get(&token).filter(|(asked, _)| asked.elapsed() < MAX_AGE).map(|(_, status)| *status);
        if let Some(status) = known {
            return status;
        }
        match tokio::time::timeout(TIMEOUT, self.ask(&token)).await {
            Ok(Ok(status)) => {
                answers().put(token, (Instant::now(), status));
                status
            }
            Ok(Err(error)) => {
                tracing::warn!(error = error_text(&error), "failed to check who may read metrics");
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
