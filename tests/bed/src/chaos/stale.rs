//! Responses of an API server whose cache is behind etcd: lists and watches that don't ask for the
//! newest state have an earlier one, which is read from etcd at its resourceVersion.

use std::io;
use std::time::Duration;

use futures::StreamExt;
use futures::stream::{iter, once};
use http::request::Parts;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::{BodyExt, Empty, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use serde_json::{Value, json};

use crate::gate::{Answer, Body, Upstream};

/// Answers `request` with the state at `version`. A watch has no further events until `rest` is
/// over.
pub async fn answer(version: u64, rest: Duration, server: &Upstream, request: Request<Incoming>) -> Answer {
    let query = request.uri().query().unwrap_or_default().to_owned();
    let parameter = |name: &str| query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    let from: Option<u64> = parameter("resourceVersion").and_then(|text| text.parse().ok());
    let Some(from) = from.filter(|_| version > 0) else { return server.send(request).await };
    let is_watch = super::is_watch(&request);
    if from > version {
        // "Too large resource version".
        return if is_watch { Ok(super::status(504, Some(1))) } else { server.send(request).await };
    }
    if !is_watch || from > 0 || parameter("sendInitialEvents") != Some("true") {
        let answer = server.send(request).await?;
        return Ok(if is_watch { answer.map(|body| delayed(Vec::new(), rest, body)) } else { answer });
    }
    // The initial events are those of the earlier state, and the watch continues from there.
    let (parts, _) = request.into_parts();
    let list = server.send(list(version, &parts)?).await?;
    if !list.status().is_success() {
        return Ok(list);
    }
    let list: Value = serde_json::from_slice(&list.into_body().collect().await?.to_bytes())?;
    let watch = with_query(&parts, |pair| match pair.split_once('=') {
        Some(("resourceVersion", _)) => Some(format!("resourceVersion={version}")),
        Some(("sendInitialEvents" | "resourceVersionMatch", _)) => None,
        _ => Some(pair.to_owned()),
    })?;
    Ok(server.send(watch).await?.map(|body| delayed(events(&list, version), rest, body)))
}

/// The request for the list of what `watch` watches, at `version`.
fn list(version: u64, watch: &Parts) -> io::Result<Request<Empty<Bytes>>> {
    let mut request = with_query(watch, |pair| {
        let name = pair.split('=').next().unwrap_or_default();
        ["labelSelector", "fieldSelector"].contains(&name).then(|| pair.to_owned())
    })?;
    let uri = request.uri().to_string();
    let separator = if uri.contains('?') { '&' } else { '?' };
    let uri = format!("{uri}{separator}resourceVersion={version}&resourceVersionMatch=Exact");
    *request.uri_mut() = uri.parse().map_err(io::Error::other)?;
    let accept = request.headers().get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let accept = accept.replace("as=PartialObjectMetadata;", "as=PartialObjectMetadataList;");
    let accept = HeaderValue::from_str(&accept).map_err(io::Error::other)?;
    request.headers_mut().insert(header::ACCEPT, accept);
    Ok(request)
}

/// The request `parts`, whose parameters `change` replaces or removes.
fn with_query(parts: &Parts, change: impl Fn(&str) -> Option<String>) -> io::Result<Request<Empty<Bytes>>> {
    let pairs = parts.uri.query().unwrap_or_default().split('&').filter_map(change);
    let query = pairs.collect::<Vec<_>>().join("&");
    let uri: Uri = format!("{}?{query}", parts.uri.path()).trim_end_matches('?').parse().map_err(io::Error::other)?;
    let mut request = Request::new(Empty::new());
    (*request.method_mut(), *request.uri_mut()) = (parts.method.clone(), uri);
    *request.headers_mut() = parts.headers.clone();
    Ok(request)
}

/// The initial events of a watch for the objects of `list`, as lines.
fn events(list: &Value, version: u64) -> Vec<u8> {
    let kind = list["kind"].as_str().unwrap_or_default().trim_end_matches("List");
    let mut lines = Vec::new();
    let mut add = |event: Value| lines.extend_from_slice(format!("{event}\n").as_bytes());
    for item in list["items"].as_array().into_iter().flatten() {
        let mut object = item.clone();
        for (name, value) in [("kind", kind), ("apiVersion", list["apiVersion"].as_str().unwrap_or_default())] {
            if object[name].is_null() {
                object[name] = json!(value);
            }
        }
        add(json!({"type": "ADDED", "object": object}));
    }
    add(json!({"type": "BOOKMARK", "object": {"kind": kind, "apiVersion": list["apiVersion"], "metadata": {
        "resourceVersion": version.to_string(), "annotations": {"k8s.io/initial-events-end": "true"}}}}));
    lines
}

/// A body with `first`, and with `body` after `delay`.
fn delayed(first: Vec<u8>, delay: Duration, body: Body) -> Body {
    let first = (!first.is_empty()).then(|| Ok(Frame::data(Bytes::from(first))));
    let later = once(async move {
        tokio::time::sleep(delay).await;
        body.into_data_stream().map(|data| data.map(Frame::data))
    });
    StreamBody::new(iter(first).chain(later.flatten())).boxed_unsync()
}
