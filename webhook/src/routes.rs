//! `/validate` and `/mutate`: answers reviews, within limits.

use std::sync::Arc;
use std::time::Instant;

use axum::Router;
use axum::extract::{Request as HttpRequest, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use json_patch::Patch;
use knative_operator_rules::authorization::{author, fleet_users};
use knative_operator_rules::{ONE_TARGET, Violation};
use knative_operator_runtime::json_response::json_response;
use knative_operator_runtime::rarely::Rarely;
use knative_operator_runtime::trace::continue_trace;
use knative_operator_shared::api::Component;
use knative_operator_shared::defaults;
use knative_operator_shared::text::{MAX_MESSAGE, cut};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use crate::admission::{component, validate, validate_before_schema, validate_without_clusters};
use crate::approval;
use crate::authorization::{self, Authorizer, refusal};
use crate::body;
use crate::cluster_facts::ClusterFacts;
use crate::competitors;
use crate::definition;
use crate::fleet;
use crate::lifetime::{foreground, missing_owner, new_owners, unconfirmed, unconfirmed_drops};
use crate::live::Live;
use crate::metrics::{Metrics, Outcome, Webhook};
use crate::request::{self, Request, ReviewError};
use crate::review::Review;
use crate::schema;
use crate::stored_fleets;
use crate::turns::Turns;

/// Maximum number of reviews in progress. Each takes a fraction of a millisecond, so another
/// replica answers sooner than this one.
const MAX_REVIEWS: usize = 512;
/// Length of a review in bytes, from which on it takes long: a patch of this length is YAML, which
/// takes several times as long as JSON.
const LARGE: usize = 256 << 10;
/// Maximum length of a text of a request in the log, in bytes: of a message, and of a name.
const MAX_LOGGED: (usize, usize) = (MAX_MESSAGE, 253);

/// Answers reviews.
#[derive(Clone)]
pub struct App {
    metrics: Metrics,
    facts: ClusterFacts,
    authorizer: Authorizer,
    live: Live,
    reviews: Arc<Semaphore>,
    /// The turn of a large body.
    large: Arc<Semaphore>,
    fleets: Turns,
    /// When an invalid review was logged: everybody who reaches the port can send some.
    invalid: Arc<Rarely>,
    draining: CancellationToken,
}

/// Routes of the webhook. Once `draining`, each response closes its connection.
pub fn router(
    metrics: Metrics,
    facts: ClusterFacts,
    authorizer: Authorizer,
    live: Live,
    draining: CancellationToken,
) -> Router {
    let app = App::new(metrics, facts, authorizer, live, draining);
    let of = |webhook| {
        post(move |State(app): State<App>, request: HttpRequest| async move { app.answer(webhook, request).await })
    };
    Router::new().route("/validate", of(Webhook::Validate)).route("/mutate", of(Webhook::Mutate)).with_state(app)
}

impl App {
    /// Answers with these `facts`, permissions and fleets.
    pub fn new(
        metrics: Metrics,
        facts: ClusterFacts,
        authorizer: Authorizer,
        live: Live,
        draining: CancellationToken,
    ) -> Self {
        Self {
            metrics,
            facts,
            authorizer,
            live,
            reviews: Arc::new(Semaphore::new(MAX_REVIEWS)),
            large: Arc::new(Semaphore::new(1)),
            fleets: Turns::new(),
            invalid: Arc::default(),
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
        let mut response = match body::receive(request, &self.large).await {
            Ok(body) => {
                // Bodies that are on their way have no permit. If all permits are in use, the peer
                // with the most requests is refused, and the others are not.
                let permit = self.reviews.try_acquire();
                let has_capacity = permit.is_ok() || !body.is_from_busiest_peer();
                match self.decide(webhook, &body, has_capacity).await {
                    Ok(review) => json_response(StatusCode::OK, &review),
                    Err(error) => {
                        if self.invalid.is_due() {
                            tracing::warn!(error = cut(&error.to_string(), MAX_LOGGED.0), "received an invalid review");
                        }
                        self.metrics.count_invalid(webhook);
                        match Review::refuse_unanswered(&error) {
                            Some(review) => json_response(StatusCode::OK, &review),
                            None => (StatusCode::BAD_REQUEST, error.to_string()).into_response(),
                        }
                    }
                }
            }
            Err(refused) => {
                self.metrics.count_invalid(webhook);
                refused.into_response()
            }
        };
        self.metrics.observe_duration(webhook, started.elapsed());
        if self.draining.is_cancelled() {
            response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }

    /// Answers the review in `body`; `has_capacity`: whether the webhook has a permit for it.
    pub async fn decide(&self, webhook: Webhook, body: &[u8], has_capacity: bool) -> Result<Review, ReviewError> {
        let (request, is_large) = (request::parse(body)?, body.len() >= LARGE);
        if !has_capacity {
            self.count(webhook, &request, Outcome::Busy, "");
            return Ok(Review::too_many_requests(request));
        }
        let review = match webhook {
            Webhook::Validate => {
                let denied = self.authorizer.check(&request).await;
                let is_denied = denied.iter().any(Violation::is_error);
                // Which clusters there are, and who uses them, is for those who may use them.
                let rules: fn(&Request, &ClusterFacts) -> Vec<Violation> =
                    if is_denied { validate_without_clusters } else { validate };
                let (request, mut violations) = self.violations(request, rules, is_large).await?;
                if !is_denied
                    && violations.iter().any(|violation| violation.rule.id == ONE_TARGET.id)
                    && competitors::forget_deleted(&self.live, &self.facts, &request).await
                {
                    // Not before: the time that it takes tells who uses a cluster.
                    violations = validate(&request, &self.facts);
                }
                violations.extend(denied);
                violations.extend(foreground(&request));
                violations.extend(unconfirmed(&request));
                violations.extend(unconfirmed_drops(&request));
                violations.extend(definition::check(&self.live, &request).await);
                if !violations.iter().any(Violation::is_error) && !self.authorizer.is_exempt(&request) {
                    violations.extend(self.check_owner(&request).await);
                }
                if self.is_refused(webhook, &request, &violations) {
                    // Warnings may name the same.
                    let warned = if is_denied { &[][..] } else { &violations };
                    Review::refuse(request, &violations, refusal(&violations)).warn(warned)
                } else {
                    Review::allow(request).warn(&violations)
                }
            }
            // Validates, too: the API server checks the CRD's own rules between the mutating and
            // the validating webhooks, and their messages say less.
            Webhook::Mutate => {
                if let Some(patch) = schema::restored(&request) {
                    return Ok(Review::allow_with_patch(request, &patch));
                }
                let (request, mut violations) = self.violations(request, validate_before_schema, is_large).await?;
                let bound = self.bind(&request).await.unwrap_or_else(|violation| {
                    violations.push(violation);
                    None
                });
                if self.is_refused(webhook, &request, &violations) {
                    Review::refuse(request, &violations, refusal(&violations))
                } else if let Some(patch) = bound {
                    Review::allow_with_patch(request, &patch)
                } else {
                    Self::with_defaults(request)
                }
            }
        };
        Ok(review)
    }

    /// The violations of `request`. A fleet has up to thousands of clusters: fleets, and what
    /// `is_large`, are validated one after another on another thread, so that other reviews don't
    /// wait.
    async fn violations(
        &self,
        request: Request,
        rules: fn(&Request, &ClusterFacts) -> Vec<Violation>,
        is_large: bool,
    ) -> Result<(Request, Vec<Violation>), ReviewError> {
        if !is_large && !fleet::KINDS.contains(&request.kind.kind.as_str()) {
            let violations = rules(&request, &self.facts);
            return Ok((request, violations));
        }
        let (uid, namespace) = (request.uid.clone(), request.namespace.clone());
        let facts = self.facts.clone();
        let validated = self.fleets.run(&namespace, move || {
            let violations = rules(&request, &facts);
            (request, violations)
        });
        validated.await.map_err(|_| ReviewError::Interrupted { uid })
    }

    /// The violation of a new owner reference of `request` to a fleet.
    async fn check_owner(&self, request: &Request) -> Option<Violation> {
        match *new_owners(request) {
            [] => None,
            [(name, uid)] => stored_fleets::check_owner(&self.live, &request.namespace, name, uid).await,
            // At most one fleet owns a resource.
            [.., (name, uid)] => Some(missing_owner(name, uid)),
        }
    }

    /// The patch that binds a new approval in `request` to its fleet; none for other requests.
    async fn bind(&self, request: &Request) -> Result<Option<Patch>, Violation> {
        let Some(name) = approval::fleet_of(request) else { return Ok(None) };
        let fleet = stored_fleets::get(&self.live, &request.namespace, name).await?;
        approval::bind(request, &fleet).map(Some)
    }

    /// Admits the request, with defaults, its author, and who changed or paused it.
    fn with_defaults(mut request: Request) -> Review {
        let user = &request.user_info;
        let (author, users) = match authorization::write(&request) {
            Some(write) => (author::record(&write, user), fleet_users::record(&write, user)),
            // An approval is of the one who created it.
            None if fleet::is_approval(&request) && request.operation == "UPDATE" => {
                (author::keep(&request.object, &request.old_object), None)
            }
            None => return Review::allow(request),
        };
        let component = component(&request).filter(|_| defaults::may_need_defaults(&request.object));
        if author.is_none() && users.is_none() && component.is_none() {
            return Review::allow(request);
        }
        let before = request.object.clone();
        if let Some(component) = component {
            defaults::set_defaults(component, &mut request.object);
        }
        for recorded in [author, users].into_iter().flatten() {
            json_patch::merge(&mut request.object, &recorded);
        }
        let patch = json_patch::diff(&before, &request.object);
        Review::allow_with_patch(request, &patch)
    }

    /// Whether the request is refused; counts and logs it.
    fn is_refused(&self, webhook: Webhook, request: &Request, violations: &[Violation]) -> bool {
        let errors: Vec<&Violation> = violations.iter().filter(|p| p.is_error()).collect();
        match (errors.first(), violations.first()) {
            (Some(first), _) => {
                self.count(webhook, request, Outcome::Refused, first.rule.id);
                let [kind, operation, namespace, name, violations] = logged(request, &errors);
                tracing::info!(kind, operation, namespace, name, violations, "refused");
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

/// What is logged of `request`, which is refused for `errors`: kind, operation, namespace, name,
/// and the violations. All are texts of users, who can send many.
fn logged(request: &Request, errors: &[&Violation]) -> [String; 5] {
    let violations = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    let names = [&request.kind.kind, &request.operation, &request.namespace, &request.name];
    let [kind, operation, namespace, name] = names.map(|name| cut(name, MAX_LOGGED.1));
    [kind, operation, namespace, name, cut(&violations, MAX_LOGGED.0)]
}

#[cfg(test)]
mod tests;
