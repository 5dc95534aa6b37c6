//! Handles one request to a simulated spoke.

use std::convert::Infallible;
use std::sync::Arc;

use futures::{StreamExt, stream};
use http::{HeaderMap, Method, Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::store::{Change, below};
use super::{Connection, Spoke};

type Body = UnsyncBoxBody<Bytes, Infallible>;

/// The response to `request`, whose path begins with the number of the spoke.
pub async fn answer(connection: Arc<Connection>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let path = parts.uri.path().trim_start_matches('/');
    let (number, rest) = path.split_once('/').unwrap_or((path, ""));
    let (path, query) = (format!("/{rest}"), parts.uri.query().unwrap_or_default().to_owned());
    let Some(spoke) = number.parse().ok().and_then(|number| connection.of(number)) else {
        return Ok(failure(404, "no such spoke"));
    };
    let accepts = parts.headers.get("accept").and_then(|a| a.to_str().ok()).unwrap_or_default();
    let metadata_only = accepts.contains("PartialObjectMetadata");
    let body = if parts.method == Method::GET {
        Bytes::new()
    } else {
        body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default()
    };
    let is_watch = parts.method == Method::GET && parameter(&query, "watch").is_some();
    if is_watch || parts.method != Method::GET {
        spoke.record(token(&parts.headers));
    }
    Ok(match parts.method {
        Method::GET if is_watch => watch(spoke, &path, &query, metadata_only),
        Method::GET => read(spoke, &path, &query, metadata_only),
        Method::PATCH => {
            spoke.count("patch");
            apply(spoke, &path, &query, &body, metadata_only)
        }
        Method::POST => {
            spoke.count("create");
            let object: Value = serde_json::from_slice(&body).unwrap_or_default();
            let path = format!("{path}/{}", object["metadata"]["name"].as_str().unwrap_or_default());
            if spoke.store.get(&path).is_some() {
                failure(409, "already exists")
            } else {
                apply(spoke, &path, &query, &body, metadata_only)
            }
        }
        Method::DELETE => {
            spoke.count("delete");
            if spoke.store.delete(&path) {
                json(200, &json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Success"}))
            } else {
                failure(404, "not found")
            }
        }
        _ => failure(405, "not allowed"),
    })
}

/// The token of the client.
fn token(headers: &HeaderMap) -> &str {
    let header = headers.get("authorization").and_then(|header| header.to_str().ok());
    header.and_then(|header| header.strip_prefix("Bearer ")).unwrap_or_default()
}

fn read(spoke: &Spoke, path: &str, query: &str, metadata_only: bool) -> Response<Body> {
    spoke.count("get");
    if path == "/version" {
        return json(
            200,
            &json!({"major": "1", "minor": "36", "gitVersion": "v1.36.3", "gitCommit": "", "gitTreeState": "", "buildDate": "", "goVersion": "", "compiler": "", "platform": ""}),
        );
    }
    if let Some(found) = spoke.store.get(path) {
        return json(200, &found.show(metadata_only));
    }
    // Names are at even positions: /api/v1/secrets and /api/v1/namespaces/a/secrets are lists.
    let depth = path.split('/').count() - usize::from(path.starts_with("/apis/"));
    if !matches!(depth, 4 | 6) {
        return failure(404, "not found");
    }
    let selector = parameter(query, "labelSelector").unwrap_or_default();
    let (objects, version, _) = spoke.store.list(path);
    let items: Vec<Value> = objects.iter().filter(|o| o.matches(&selector)).map(|o| o.show(metadata_only)).collect();
    json(
        200,
        &json!({"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": version.to_string()}, "items": items}),
    )
}

fn apply(spoke: &Spoke, path: &str, query: &str, body: &Bytes, metadata_only: bool) -> Response<Body> {
    let text = std::str::from_utf8(body).unwrap_or_default();
    let manager = parameter(query, "fieldManager").unwrap_or_default();
    let Some((stored, new)) = spoke.store.apply(path, text, &manager) else { return failure(400, "no JSON") };
    spoke.applied(path);
    json(if new { 201 } else { 200 }, &stored.show(metadata_only))
}

/// The initial objects if requested, then changes, until the client disconnects or the timeout.
fn watch(spoke: &Spoke, path: &str, query: &str, metadata_only: bool) -> Response<Body> {
    spoke.count("watch");
    let selector = parameter(query, "labelSelector").unwrap_or_default();
    let seconds = parameter(query, "timeoutSeconds").and_then(|s| s.parse().ok()).unwrap_or(300);
    let mut first = Vec::new();
    let changes = if parameter(query, "sendInitialEvents").is_some() {
        let (objects, version, changes) = spoke.store.list(path);
        for object in objects.iter().filter(|o| o.matches(&selector)) {
            first.extend(line("ADDED", &object.show(metadata_only)));
        }
        let end = json!({"metadata": {"resourceVersion": version.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}}});
        first.extend(line("BOOKMARK", &end));
        changes
    } else {
        let version = parameter(query, "resourceVersion").and_then(|v| v.parse().ok()).unwrap_or_default();
        let Some((missed, changes)) = spoke.store.since(version) else {
            return failure(410, "too old resource version");
        };
        for Change { type_, object, .. } in
            missed.iter().filter(|c| below(path, &c.path) && c.object.matches(&selector))
        {
            first.extend(line(type_, &object.show(metadata_only)));
        }
        changes
    };
    let until = tokio::time::Instant::now() + std::time::Duration::from_secs(seconds);
    let state = (changes, path.to_owned(), selector, until);
    let later = stream::unfold(state, move |(mut changes, path, selector, until)| async move {
        loop {
            match tokio::time::timeout_at(until, changes.recv()).await {
                Ok(Ok(Change { type_, path: at, object })) if below(&path, &at) && object.matches(&selector) => {
                    return Some((
                        Bytes::from(line(type_, &object.show(metadata_only))),
                        (changes, path, selector, until),
                    ));
                }
                Ok(Ok(_)) => {}
                // Too slow: the client has to start again.
                Ok(Err(broadcast::error::RecvError::Lagged(_) | broadcast::error::RecvError::Closed)) | Err(_) => {
                    return None;
                }
            }
        }
    });
    let all = stream::iter((!first.is_empty()).then(|| Bytes::from(first))).chain(later);
    let frames = all.map(|bytes| Ok::<_, Infallible>(Frame::data(bytes)));
    response(200, StreamBody::new(frames).boxed_unsync())
}

fn line(type_: &str, object: &Value) -> Vec<u8> {
    let mut line = json!({"type": type_, "object": object}).to_string().into_bytes();
    line.push(b'\n');
    line
}

/// The value of query parameter `name`, decoded as far as the operator needs it.
fn parameter(query: &str, name: &str) -> Option<String> {
    let value = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    Some(value.replace("%3D", "=").replace("%2F", "/").replace("%2C", ",").replace('+', " "))
}

fn failure(code: u16, message: &str) -> Response<Body> {
    json(
        code,
        &json!({"apiVersion": "v1", "kind": "Status", "metadata": {}, "status": "Failure", "message": message, "reason": if code == 404 { "NotFound" } else { "Failure" }, "code": code}),
    )
}

fn json(code: u16, value: &Value) -> Response<Body> {
    response(code, Full::new(Bytes::from(value.to_string())).boxed_unsync())
}

fn response(code: u16, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    *response.status_mut() = http::StatusCode::from_u16(code).unwrap_or_default();
    response.headers_mut().insert("content-type", http::HeaderValue::from_static("application/json"));
    response
}
