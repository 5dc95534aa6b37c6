//! `/validate` and `/mutate`: answers reviews, within limits.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Bytes;
use axum::extract::{Request as HttpRequest, State};
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use knative_operator_runtime::trace::continue_trace;
use knative_operator_shared::api::Component;
use knative_operator_shared::defaults;
use knative_operator_shared::rules::Violation;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::admission::{component, validate, validate_before_schema};
use crate::authorization::{Authorizer, refusal};
use crate::cluster_facts::ClusterFacts;
use crate::fleet;
use crate::metrics::{Metrics, Outcome, Webhook};
use crate::review::{self, Refusal, Request, Review, ReviewError};

/// Maximum length of a body in bytes: two objects of etcd's limit, escaped, with a margin.
const BODY_LIMIT: usize = 8 << 20;
/// Maximum length of all bodies in progress, in bytes.
const MAX_BYTES: usize = 64 << 20;
/// Maximum number of reviews in progress. Each takes a fraction of a millisecond, so another
/// replica answers sooner than this one.
const MAX_REVIEWS: usize = 512;
/// Time limit for receiving a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);

/// Answers reviews.
#[derive(Clone)]
pub struct App {
    metrics: Metrics,
    facts: ClusterFacts,
    authorizer: Authorizer,
    reviews: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    draining: CancellationToken,
}

/// Routes of the webhook. Once `draining`, each response closes its connection.
pub fn router(metrics: Metrics, facts: ClusterFacts, authorizer: Authorizer, draining: CancellationToken) -> Router {
    let app = App::new(metrics, facts, authorizer, draining);
    let of = |webhook| {
        post(move |State(app): State<App>, request: HttpRequest| async move { app.answer(webhook, request).await })
    };
    Router::new().route("/validate", of(Webhook::Validate)).route("/mutate", of(Webhook::Mutate)).with_state(app)
}

impl App {
    /// Answers with these `facts` and permissions.
    pub fn new(metrics: Metrics, facts: ClusterFacts, authorizer: Authorizer, draining: CancellationToken) -> Self {
        Self {
            metrics,
            facts,
            authorizer,
            reviews: Arc::new(Semaphore::new(MAX_REVIEWS)),
            bytes: Arc::new(Semaphore::new(MAX_BYTES)),
            draining,
        }
    }

    async fn answer(&self, webhook: Webhook, request: HttpRequest) -> Response {
        let started = Instant::now();
        // Disabled, and without cost, unless traces are on.
        let span = tracing::debug_span!("review", otel.kind = "server", webhook = ?webhook);
        continue_trace(&span, request.headers());
        self.review(webhook, request, started).instrument(span).await
    }

    async fn review(&self, webhook: Webhook, request: HttpRequest, started: Instant) -> Response {
        let permit = self.reviews.try_acquire();
        let mut response = match self.body(request).await {
            Ok(body) => match self.decide(webhook, &body, permit.is_ok()).await {
                Ok(review) => Json(review).into_response(),
                Err(error) => {
                    tracing::warn!(%error, "received an invalid review");
                    self.metrics.count_invalid(webhook);
                    (StatusCode::BAD_REQUEST, error.to_string()).into_response()
                }
            },
            Err((status, why)) => {
                self.metrics.count_invalid(webhook);
                (status, why).into_response()
            }
        };
        self.metrics.observe_duration(webhook, started.elapsed());
        if self.draining.is_cancelled() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Reads the body, with limits on length and time.
    async fn body(&self, request: HttpRequest) -> Result<Bytes, (StatusCode, String)> {
        let too_large = || (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {BODY_LIMIT} bytes"));
        let length = length(request.headers()).unwrap_or(BODY_LIMIT);
        if length > BODY_LIMIT {
            return Err(too_large());
        }
        let permit = u32::try_from(length).unwrap_or(u32::MAX);
        let Ok(_permit) = self.bytes.try_acquire_many(permit) else {
            return Err((
                StatusCode::TOO_MANY_REQUESTS,
                format!("{MAX_BYTES} bytes of other requests are in progress; try again"),
            ));
        };
        let body = axum::body::to_bytes(request.into_body(), BODY_LIMIT);
        match tokio::time::timeout(BODY_TIMEOUT, body).await {
            Ok(Ok(body)) => Ok(body),
            Ok(Err(error))
                if std::error::Error::source(&error)
                    .is_some_and(<dyn std::error::Error>::is::<http_body_util::LengthLimitError>) =>
            {
                Err(too_large())
            }
            Ok(Err(error)) => Err((StatusCode::BAD_REQUEST, format!("cannot read the body: {error}"))),
            Err(_) => Err((StatusCode::REQUEST_TIMEOUT, format!("the body was not received within {BODY_TIMEOUT:?}"))),
        }
    }

    /// Answers the review in `body`; `has_capacity`: whether the webhook has a permit for it.
    pub async fn decide(&self, webhook: Webhook, body: &[u8], has_capacity: bool) -> Result<Review, ReviewError> {
        let request = review::parse(body)?;
        if !has_capacity {
            self.count(webhook, &request, Outcome::Busy, "");
            return Ok(Review::too_many_requests(request));
        }
        let review = match webhook {
            Webhook::Validate => {
                let mut violations = validate(&request, &self.facts);
                violations.extend(self.authorizer.check(&request, &self.facts).await);
                if self.is_refused(webhook, &request, &violations) {
                    Review::refuse(request, &violations, refusal(&violations)).warn(&violations)
                } else {
                    Review::allow(request).warn(&violations)
                }
            }
            // Validates, too: the API server checks the CRD's own rules between the mutating and
            // the validating webhooks, and their messages say less.
            Webhook::Mutate => {
                let violations = validate_before_schema(&request, &self.facts);
                if self.is_refused(webhook, &request, &violations) {
                    Review::refuse(request, &violations, Refusal::Invalid)
                } else {
                    Self::with_defaults(request)
                }
            }
        };
        Ok(review)
    }

    /// Admits the request, with defaults.
    fn with_defaults(mut request: Request) -> Review {
        let has_object = matches!(request.operation.as_str(), "CREATE" | "UPDATE");
        let Some(component) = component(&request).filter(|_| has_object) else {
            return match fleet::set_username(&request) {
                Some(patch) => Review::allow_with_patch(request, &patch),
                None => Review::allow(request),
            };
        };
        if !defaults::may_need_defaults(&request.object) {
            return Review::allow(request);
        }
        let before = request.object.clone();
        defaults::set_defaults(component, &mut request.object);
        let patch = json_patch::diff(&before, &request.object);
        Review::allow_with_patch(request, &patch)
    }

    /// Whether the request is refused; counts and logs it.
    fn is_refused(&self, webhook: Webhook, request: &Request, violations: &[Violation]) -> bool {
        let errors: Vec<&Violation> = violations.iter().filter(|p| p.is_error()).collect();
        match (errors.first(), violations.first()) {
            (Some(first), _) => {
                self.count(webhook, request, Outcome::Refused, first.rule.id);
                let messages = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
                tracing::info!(
                    kind = request.kind.kind,
                    operation = request.operation,
                    namespace = request.namespace,
                    name = request.name,
                    violations = messages,
                    "refused"
                );
            }
            (None, Some(first)) => self.count(webhook, request, Outcome::Warned, first.rule.id),
            (None, None) => self.count(webhook, request, Outcome::Allowed, ""),
        }
        !errors.is_empty()
    }

    fn count(&self, webhook: Webhook, request: &Request, outcome: Outcome, rule: &'static str) {
        // Labels have a fixed set of values, so that requests can't grow the metrics.
        let kind = Component::ALL.map(Component::kind).into_iter().chain(fleet::KINDS);
        let kind = kind.into_iter().find(|kind| *kind == request.kind.kind).unwrap_or("other");
        let operation = ["CREATE", "UPDATE", "DELETE"].into_iter().find(|o| *o == request.operation).unwrap_or("other");
        self.metrics.count_review(webhook, kind, operation, outcome, rule);
    }
}

/// The length in the header.
fn length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}
