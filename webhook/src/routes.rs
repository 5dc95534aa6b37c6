//! `/validate` and `/mutate`: a review in, its answer out, within limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{Request as HttpRequest, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use knative_operator_shared::api::Component;
use knative_operator_shared::defaults;
use knative_operator_shared::rules::Problem;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use crate::judge::{component, judge, judge_early};
use crate::known::Known;
use crate::metrics::{Metrics, Outcome, Webhook};
use crate::review::{self, Request, Review, ReviewError};

/// Largest body, in bytes: two objects of etcd's limit, escaped, with room.
const BODY_LIMIT: usize = 8 << 20;
/// Bytes of all bodies together, at most.
const BYTES: usize = 64 << 20;
/// Reviews under way at once, at most. Each takes a fraction of a millisecond: whoever comes beyond that is better off elsewhere.
const REVIEWS: usize = 512;
/// How long a body may take to come.
const PATIENCE: Duration = Duration::from_secs(5);

/// What answers reviews.
#[derive(Clone)]
pub struct App {
    metrics: Metrics,
    known: Known,
    reviews: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    draining: CancellationToken,
}

/// The routes of the webhook. Once `draining`, each answer is the last on its connection.
pub fn router(metrics: Metrics, known: Known, draining: CancellationToken) -> Router {
    let app = App::new(metrics, known, draining);
    let of = |webhook| {
        post(move |State(app): State<App>, request: HttpRequest| async move { app.answer(webhook, request).await })
    };
    Router::new().route("/validate", of(Webhook::Validate)).route("/mutate", of(Webhook::Mutate)).with_state(app)
}

impl App {
    /// Answers with what is `known`.
    pub fn new(metrics: Metrics, known: Known, draining: CancellationToken) -> Self {
        Self {
            metrics,
            known,
            reviews: Arc::new(Semaphore::new(REVIEWS)),
            bytes: Arc::new(Semaphore::new(BYTES)),
            draining,
        }
    }

    async fn answer(&self, webhook: Webhook, request: HttpRequest) -> Response {
        let started = Instant::now();
        let turn = self.reviews.try_acquire();
        let mut response = match self.body(request).await {
            Ok(body) => match self.decide(webhook, &body, turn.is_ok()) {
                Ok(review) => Json(review).into_response(),
                Err(error) => {
                    tracing::warn!(%error, "not a review");
                    self.metrics.unreadable(webhook);
                    (StatusCode::BAD_REQUEST, error.to_string()).into_response()
                }
            },
            Err((status, why)) => {
                self.metrics.unreadable(webhook);
                (status, why).into_response()
            }
        };
        self.metrics.answered(webhook, started.elapsed());
        if self.draining.is_cancelled() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// The whole body, if it is not too large, and doesn't take too long.
    async fn body(&self, request: HttpRequest) -> Result<Bytes, (StatusCode, String)> {
        let too_large = || (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {BODY_LIMIT} bytes"));
        let length = length(request.headers()).unwrap_or(BODY_LIMIT);
        if length > BODY_LIMIT {
            return Err(too_large());
        }
        let room = u32::try_from(length).unwrap_or(u32::MAX);
        let Ok(_room) = self.bytes.try_acquire_many(room) else {
            return Err((
                StatusCode::TOO_MANY_REQUESTS,
                format!("{BYTES} bytes of other requests are under way; try again"),
            ));
        };
        let body = axum::body::to_bytes(request.into_body(), BODY_LIMIT);
        match tokio::time::timeout(PATIENCE, body).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(error))
                if std::error::Error::source(&error)
                    .is_some_and(<dyn std::error::Error>::is::<http_body_util::LengthLimitError>) =>
            {
                Err(too_large())
            }
            Ok(Err(error)) => Err((StatusCode::BAD_REQUEST, format!("the body can't be read: {error}"))),
            Err(_) => Err((StatusCode::REQUEST_TIMEOUT, format!("the body did not come within {PATIENCE:?}"))),
        }
    }

    /// The answer of `webhook` to the review in `body`, for which there is `room`, or not.
    pub fn decide(&self, webhook: Webhook, body: &[u8], room: bool) -> Result<Review, ReviewError> {
        let request = review::read(body)?;
        if !room {
            self.count(webhook, &request, Outcome::Busy, "");
            return Ok(Review::busy(request));
        }
        let review = match webhook {
            Webhook::Validate => {
                let problems = judge(&request, &self.known);
                if self.refusal(webhook, &request, &problems) {
                    Review::refuse(request, &problems).warn(&problems)
                } else {
                    Review::allow(request).warn(&problems)
                }
            }
            // It judges all the same: the API server checks the CRD's own rules between the mutating and the validating webhooks, and
            // theirs say less.
            Webhook::Mutate => {
                let problems = judge_early(&request, &self.known);
                if self.refusal(webhook, &request, &problems) {
                    Review::refuse(request, &problems)
                } else {
                    Self::filled_in(request)
                }
            }
        };
        Ok(review)
    }

    /// Allowed, with what was left out filled in.
    fn filled_in(mut request: Request) -> Review {
        let due = matches!(request.operation.as_str(), "CREATE" | "UPDATE");
        let Some(component) = component(&request).filter(|_| due) else { return Review::allow(request) };
        if !defaults::may_lack(&request.object) {
            return Review::allow(request);
        }
        let before = request.object.clone();
        defaults::fill_in(component, &mut request.object);
        let patch = json_patch::diff(&before, &request.object);
        Review::change(request, &patch)
    }

    /// Whether it is refused, which is counted and logged.
    fn refusal(&self, webhook: Webhook, request: &Request, problems: &[Problem]) -> bool {
        let errors: Vec<&Problem> = problems.iter().filter(|p| p.is_error()).collect();
        match (errors.first(), problems.first()) {
            (Some(first), _) => {
                self.count(webhook, request, Outcome::Refused, first.rule.id);
                let told = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                tracing::info!(
                    kind = request.kind.kind,
                    operation = request.operation,
                    namespace = request.namespace,
                    name = request.name,
                    problems = told,
                    "refused"
                );
            }
            (None, Some(first)) => self.count(webhook, request, Outcome::Warned, first.rule.id),
            (None, None) => self.count(webhook, request, Outcome::Allowed, ""),
        }
        !errors.is_empty()
    }

    fn count(&self, webhook: Webhook, request: &Request, outcome: Outcome, rule: &'static str) {
        // Labels only from a closed set: what a client sends must not grow the metrics.
        let kind = Component::of_kind(&request.kind.kind).map_or("other", Component::kind);
        let operation = ["CREATE", "UPDATE", "DELETE"].into_iter().find(|o| *o == request.operation).unwrap_or("other");
        self.metrics.reviewed(webhook, kind, operation, outcome, rule);
    }
}

/// The length that the body says to have.
fn length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
