//! `/validate` and `/mutate`.

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use knative_operator_shared::api::Component;
use knative_operator_shared::rules::Problem;

use crate::judge::{judge, judge_early};
use crate::metrics::Metrics;
use crate::review::{self, Request, Review};

/// Largest body, in bytes: two objects of etcd's limit, escaped, with room.
const BODY_LIMIT: usize = 8 << 20;

/// The routes of the webhook.
pub fn router(metrics: Metrics) -> Router {
    Router::new()
        .route("/validate", post(validate))
        .route("/mutate", post(mutate))
        .layer(DefaultBodyLimit::max(BODY_LIMIT))
        .with_state(metrics)
}

async fn validate(State(metrics): State<Metrics>, body: Bytes) -> Response {
    answer(&body, |request| verdict("validate", &metrics, &judge(&request), request))
}

/// Nothing is defaulted yet: what a user wrote is what is stored, so GitOps tools see no drift. It judges all the same:
/// the API server checks the CRD's own rules between the mutating and the validating webhooks, and theirs say less.
async fn mutate(State(metrics): State<Metrics>, body: Bytes) -> Response {
    answer(&body, |request| verdict("mutate", &metrics, &judge_early(&request), request))
}

fn verdict(webhook: &'static str, metrics: &Metrics, problems: &[Problem], request: Request) -> Review {
    // Labels only from a closed set: what a client sends must not grow the metrics.
    let kind = Component::of_kind(&request.kind.kind).map_or("other", Component::kind);
    let operation = ["CREATE", "UPDATE", "DELETE"].into_iter().find(|o| *o == request.operation).unwrap_or("other");
    metrics.reviewed(webhook, kind, operation, problems.first().map(|p| p.rule));
    if problems.is_empty() {
        return Review::allow(request);
    }
    let first = problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ");
    tracing::info!(kind, operation, namespace = request.namespace, name = request.name, problems = first, "refused");
    Review::refuse(request, problems)
}

fn answer(body: &[u8], judge: impl FnOnce(Request) -> Review) -> Response {
    match review::read(body) {
        Ok(request) => Json(judge(request)).into_response(),
        Err(error) => {
            tracing::warn!(%error, "not a review");
            (StatusCode::BAD_REQUEST, error.to_string()).into_response()
        }
    }
}
