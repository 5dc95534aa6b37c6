//! The routes of the page.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::routing::get;
use futures::Stream;
use knative_operator_runtime::json_response::json_response;
use serde_json::{Value, json};
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::RecvError;

use super::assets;
use super::detail::{Details, parse_name};
use super::guard::Guard;
use super::live::Updates;

/// Interval of comments on an idle stream, by which both ends notice that the other is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(10);

/// Files, live updates, and details. Errors are `{"error": message}`.
pub fn router(guard: Arc<Guard>, details: Arc<Details>, updates: Arc<Updates>) -> Router {
    let live = Router::new().route("/api/events", get(events)).with_state(updates);
    Router::new()
        .route("/api/activity", get(activity))
        .route("/api/cluster/{*id}", get(cluster))
        .route("/api/fleet/{namespace}/{name}", get(fleet))
        .route("/api/resource/{*name}", get(resource))
        .route("/api/rendered/{*name}", get(rendered))
        .route("/api/diff/{*name}", get(diff))
        .route("/api/objects/{*name}", get(objects))
        .with_state(details)
        .merge(live)
        .fallback(async |uri: Uri| assets::file(uri.path()))
        .layer(axum::middleware::from_fn_with_state(guard, Guard::check))
}

fn answer(outcome: Result<Value, String>) -> Response {
    match outcome {
        Ok(value) => json_response(StatusCode::OK, &value),
        Err(error) => json_response(StatusCode::UNPROCESSABLE_ENTITY, &json!({"error": error})),
    }
}

async fn activity(State(details): State<Arc<Details>>) -> Response {
    answer(Ok(details.activity()))
}

async fn cluster(State(details): State<Arc<Details>>, Path(id): Path<String>) -> Response {
    answer(details.cluster(&id))
}

async fn fleet(State(details): State<Arc<Details>>, Path((namespace, name)): Path<(String, String)>) -> Response {
    answer(details.fleet(&namespace, &name))
}

async fn resource(State(details): State<Arc<Details>>, Path(name): Path<String>) -> Response {
    answer(parse_name(&name).and_then(|name| details.resource(name)))
}

async fn rendered(State(details): State<Arc<Details>>, Path(name): Path<String>) -> Response {
    match parse_name(&name) {
        Ok(name) => answer(details.rendered(name).await),
        Err(error) => answer(Err(error)),
    }
}

async fn diff(State(details): State<Arc<Details>>, Path(name): Path<String>) -> Response {
    match parse_name(&name) {
        Ok(name) => answer(details.diff(name).await),
        Err(error) => answer(Err(error)),
    }
}

async fn objects(State(details): State<Arc<Details>>, Path(name): Path<String>) -> Response {
    match parse_name(&name) {
        Ok(name) => answer(details.objects(name).await),
        Err(error) => answer(Err(error)),
    }
}

/// The whole state, then changes, as server-sent events.
async fn events(State(updates): State<Arc<Updates>>) -> Sse<impl Stream<Item = Result<Event, Infallible>>> {
    let stream = futures::stream::unfold((updates, None::<Receiver<Arc<str>>>), async |(updates, changes)| {
        let Some(mut receiver) = changes else {
            let (state, receiver) = updates.subscribe();
            let event = Event::default().event("state").data(state);
            return Some((Ok(event), (updates, Some(receiver))));
        };
        match receiver.recv().await {
            Ok(change) => Some((Ok(Event::default().event("change").data(change)), (updates, Some(receiver)))),
            Err(RecvError::Lagged(_)) => {
                let (state, receiver) = updates.subscribe();
                Some((Ok(Event::default().event("state").data(state)), (updates, Some(receiver))))
            }
            Err(RecvError::Closed) => None,
        }
    });
    Sse::new(stream).keep_alive(KeepAlive::new().interval(KEEP_ALIVE))
}
