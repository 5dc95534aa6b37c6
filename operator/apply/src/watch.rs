//! One watch, read line by line: it keeps an event only while it is parsed, and nothing between
//! events. (The watch of kube-rs keeps a buffer as large as its largest event, and a fleet has
//! twenty watches per cluster.)

use std::time::Duration;

use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knative_operator_shared::json::memory_of;
use kube::client::Body;
use kube::core::{Status, params};
use kube::{Client, api};
use serde::Deserialize;

use knative_operator_objects::health::WatchedObject;
use knative_operator_objects::{self, Id, Kind};

/// Time after which a watch ends that the API server should have ended.
const END_MARGIN: Duration = Duration::from_secs(15);
/// Maximum length of an event in bytes; etcd stores objects of at most 1.5 MiB.
const MAX_EVENT: usize = 8 << 20;
/// Maximum memory of what an event is parsed to, in bytes. The fields of an object's managers can
/// take nearly as much.
const MAX_EVENT_MEMORY: usize = 192 << 20;
/// Maximum length of a list or other response in bytes.
const MAX_LIST: usize = 64 << 20;
/// Annotation of the bookmark after the initial objects.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// What a watch selects.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WatchTarget {
    /// The kind.
    pub kind: Kind,
    /// The namespace; empty for cluster-scoped kinds.
    pub namespace: String,
    /// The name of the only object, regardless of its labels; empty for all objects with the
    /// labels.
    pub name: String,
}

impl WatchTarget {
    /// The objects of `kind` with the labels: in `namespace`, if the kind is namespaced.
    pub fn labeled(kind: Kind, namespace: &str) -> Self {
        let namespace = if kind.namespaced { namespace.to_owned() } else { String::new() };
        Self { kind, namespace, name: String::new() }
    }

    /// Whether `id` is of its kind, and in its namespace if it has one.
    pub fn selects(&self, id: &Id) -> bool {
        let resource = &self.kind.resource;
        id.group == resource.group
            && id.kind == resource.kind
            && (self.namespace.is_empty() || self.namespace == id.namespace)
            && (self.name.is_empty() || self.name == id.name)
    }
}

/// An event of a watch, with the names of kube-rs.
pub enum WatchEvent {
    /// An initial object.
    InitApply(WatchedObject),
    /// The initial objects are complete, at this resourceVersion.
    InitDone(u64),
    /// An object was created or changed.
    Apply(WatchedObject),
    /// An object was deleted; this is its last state.
    Delete(WatchedObject),
}

/// How a watch ended.
#[derive(Debug)]
pub enum WatchEnd {
    /// Normally, after its maximum duration: the next watch continues.
    Completed,
    /// The resourceVersion is too old: the watch must start again.
    Expired,
    /// The API server refused it.
    Refused(Box<Status>),
    /// The connection failed, or the response can't be parsed.
    Disconnected(String),
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    type_: Type,
    object: WatchedObject,
}

#[derive(Deserialize)]
struct Failure {
    object: Status,
}

#[derive(Deserialize)]
#[serde(rename_all = "UPPERCASE")]
enum Type {
    Added,
    Modified,
    Deleted,
    Bookmark,
    Error,
}

#[derive(Deserialize)]
struct List {
    metadata: ObjectMeta,
    /// Null if a list of metadata is empty: API servers before Kubernetes 1.34.
    items: Option<Vec<WatchedObject>>,
}

impl WatchTarget {
    fn url(&self) -> String {
        use kube::Resource;
        let namespace = Some(self.namespace.as_str()).filter(|_| self.kind.namespaced && !self.namespace.is_empty());
        kube::core::DynamicObject::url_path(&self.kind.resource, namespace)
    }

    fn field_selector(&self) -> String {
        format!("metadata.name={}", self.name)
    }

    /// Watches objects with `labels` for `duration`, with their status if `with_status`: from
    /// `version`, or from the initial objects if it is empty. `version` advances with the events.
    pub async fn watch(
        &self,
        client: &Client,
        labels: &str,
        with_status: bool,
        version: &mut String,
        duration: Duration,
        mut handle: impl FnMut(WatchEvent),
    ) -> WatchEnd {
        // At most some minutes.
        let mut params = api::WatchParams::default().timeout(u32::try_from(duration.as_secs()).unwrap_or(u32::MAX));
        params = if self.name.is_empty() { params.labels(labels) } else { params.fields(&self.field_selector()) };
        params.send_initial_events = version.is_empty();
        let request = kube::core::Request::new(self.url());
        // Version 0 means any: the newest that the API server has cached.
        let from = if version.is_empty() { "0" } else { version.as_str() };
        let request = if with_status { request.watch(&params, from) } else { request.watch_metadata(&params, from) };
        let mut body = match send(client, request).await {
            Ok(response) => response.into_body(),
            Err(end) => return end,
        };
        let mut initial = version.is_empty();
        let mut line = Vec::new();
        let limit = duration + END_MARGIN;
        let until = tokio::time::Instant::now() + limit;
        loop {
            let frame = match tokio::time::timeout_at(until, body.frame()).await {
                // Also if there is always another frame.
                Ok(frame) if tokio::time::Instant::now() < until => frame,
                _ => return WatchEnd::Disconnected(format!("the API server did not end it within {limit:?}")),
            };
            let frame = match frame {
                None => return WatchEnd::Completed,
                Some(Err(error)) => return WatchEnd::Disconnected(knative_operator_runtime::error_text(&error)),
                Some(Ok(frame)) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            for piece in data.split_inclusive(|byte| *byte == b'\n') {
                if line.len() + piece.len() > MAX_EVENT {
                    return WatchEnd::Disconnected(format!("a watch event is longer than {MAX_EVENT} bytes"));
                }
                let is_complete = piece.ends_with(b"\n");
                let text = if line.is_empty() && is_complete {
                    piece
                } else {
                    line.extend_from_slice(piece);
                    line.as_slice()
                };
                if !is_complete {
                    continue;
                }
                if let Err(end) = event(text, &mut initial, version, &mut handle) {
                    return end;
                }
                line = Vec::new();
            }
        }
    }

    /// Lists objects with `labels`; returns the resourceVersion to watch from.
    pub async fn list(
        &self,
        client: &Client,
        labels: &str,
        with_status: bool,
        handle: impl FnMut(WatchEvent),
    ) -> Result<String, WatchEnd> {
        let params = params::ListParams::default();
        let params = if self.name.is_empty() { params.labels(labels) } else { params.fields(&self.field_selector()) };
        let request = kube::core::Request::new(self.url());
        let request = if with_status { request.list(&params) } else { request.list_metadata(&params) };
        let body = Limited::new(send(client, request).await?.into_body(), MAX_LIST)
            .collect()
            .await
            .map_err(|e| WatchEnd::Disconnected(e.to_string()))?;
        read_list(&body.to_bytes(), handle)
    }
}

/// Parses a list and handles its objects; returns its resourceVersion.
fn read_list(body: &[u8], mut handle: impl FnMut(WatchEvent)) -> Result<String, WatchEnd> {
    let list: List =
        serde_json::from_slice(body).map_err(|e| WatchEnd::Disconnected(format!("cannot parse a list: {e}")))?;
    list.items.unwrap_or_default().into_iter().for_each(|object| handle(WatchEvent::InitApply(object)));
    handle(WatchEvent::InitDone(knative_operator_objects::version(&list.metadata)));
    Ok(list.metadata.resource_version.unwrap_or_default())
}

/// Parses one line of a watch and handles its event.
fn event(
    line: &[u8],
    initial: &mut bool,
    version: &mut String,
    handle: &mut impl FnMut(WatchEvent),
) -> Result<(), WatchEnd> {
    if line.trim_ascii().is_empty() {
        return Ok(());
    }
    if memory_of(line) > MAX_EVENT_MEMORY {
        let why = format!("what a watch event contains takes more than {MAX_EVENT_MEMORY} bytes of memory");
        return Err(WatchEnd::Disconnected(why));
    }
    let unparsable = |e: serde_json::Error| WatchEnd::Disconnected(format!("cannot parse a watch event: {e}"));
    let Event { type_, object } = serde_json::from_slice(line).map_err(unparsable)?;
    if matches!(type_, Type::Error) {
        let Failure { object } = serde_json::from_slice(line).map_err(unparsable)?;
        return Err(if matches!(object.code, 410 | 504) {
            WatchEnd::Expired
        } else {
            WatchEnd::Refused(Box::new(object))
        });
    }
    // The initial objects are not ordered by version: only the bookmark after them has a version to
    // continue from.
    let ends = matches!(type_, Type::Bookmark)
        && object.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(INITIAL_EVENTS_END));
    if (!*initial || ends)
        && let Some(newer) = &object.metadata.resource_version
    {
        version.clone_from(newer);
    }
    match type_ {
        Type::Added | Type::Modified if *initial => handle(WatchEvent::InitApply(object)),
        Type::Added | Type::Modified => handle(WatchEvent::Apply(object)),
        Type::Deleted => handle(WatchEvent::Delete(object)),
        Type::Bookmark if ends => {
            *initial = false;
            handle(WatchEvent::InitDone(knative_operator_objects::version(&object.metadata)));
        }
        Type::Bookmark | Type::Error => {}
    }
    Ok(())
}

/// Sends `request`; an unsuccessful response is the end of the watch.
async fn send(
    client: &Client,
    request: Result<Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<Response<Body>, WatchEnd> {
    let request = request.map_err(|e| WatchEnd::Disconnected(e.to_string()))?;
    let response = client
        .send(request.map(Body::from))
        .await
        .map_err(|e| WatchEnd::Disconnected(knative_operator_runtime::error_text(&e)))?;
    let code = response.status();
    if code.is_success() {
        return Ok(response);
    }
    let body = Limited::new(response.into_body(), MAX_EVENT)
        .collect()
        .await
        .map_err(|e| WatchEnd::Disconnected(e.to_string()))?;
    let status = serde_json::from_slice::<Status>(&body.to_bytes());
    let mut status = status
        .unwrap_or_else(|_| Status::failure(&format!("the API server answered {code} without a Status"), "Unknown"));
    status.code = code.as_u16();
    Err(if code.as_u16() == 410 { WatchEnd::Expired } else { WatchEnd::Refused(Box::new(status)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str], mut initial: bool) -> (Vec<String>, String, Option<WatchEnd>) {
        let (mut events, mut version) = (Vec::new(), String::new());
        let mut handle = |what: WatchEvent| {
            events.push(match what {
                WatchEvent::InitApply(object) => format!("listed {}", object.metadata.name.unwrap_or_default()),
                WatchEvent::InitDone(version) => format!("all at {version}"),
                WatchEvent::Apply(object) => format!("changed {}", object.metadata.name.unwrap_or_default()),
                WatchEvent::Delete(object) => format!("gone {}", object.metadata.name.unwrap_or_default()),
            });
        };
        let end = lines.iter().find_map(|line| event(line.as_bytes(), &mut initial, &mut version, &mut handle).err());
        (events, version, end)
    }

    #[test]
    fn empty_list_of_an_old_api_server_is_read() {
        let list = |items: &str| {
            let mut objects = 0;
            let body = format!(r#"{{"kind":"PartialObjectMetadataList","metadata":{{"resourceVersion":"7"}}{items}}}"#);
            let version =
                read_list(body.as_bytes(), |event| objects += i32::from(matches!(event, WatchEvent::InitApply(_))));
            (version.unwrap(), objects)
        };
        assert_eq!(list(r#","items":null"#), ("7".to_owned(), 0));
        assert_eq!(list(""), ("7".to_owned(), 0));
        assert_eq!(list(r#","items":[{"metadata":{"name":"a"}}]"#), ("7".to_owned(), 1));
    }

    #[test]
    fn watch_begins_with_initial_objects() {
        let (events, version, end) = read(
            &[
                r#"{"type":"ADDED","object":{"metadata":{"name":"b","resourceVersion":"9"}}}"#,
                r#"{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"3"}}}"#,
                r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"12","annotations":{"k8s.io/initial-events-end":"true"}}}}"#,
                "\n",
                r#"{"type":"MODIFIED","object":{"metadata":{"name":"a","resourceVersion":"13"}}}"#,
                r#"{"type":"DELETED","object":{"metadata":{"name":"b","resourceVersion":"14"}}}"#,
                r#"{"type":"BOOKMARK","object":{"metadata":{"resourceVersion":"20"}}}"#,
            ],
            true,
        );
        assert_eq!(events, ["listed b", "listed a", "all at 12", "changed a", "gone b"]);
        assert_eq!((version.as_str(), end.is_none()), ("20", true));
    }

    #[test]
    fn event_with_many_objects_ends_watch() {
        let bomb = |part: &str| {
            let fields = part.repeat(1 << 20);
            format!(r#"{{"type":"ADDED","object":{{"metadata":{{"name":"a","managedFields":[{fields}{{}}]}}}}}}"#)
        };
        let ended = read(&[&bomb("{},")], false).2;
        assert!(matches!(ended, Some(WatchEnd::Disconnected(why)) if why.contains("bytes of memory")));
        let text = format!(
            r#"{{"type":"ADDED","object":{{"metadata":{{"name":"a","annotations":{{"a":"{}"}}}}}}}}"#,
            "{,".repeat(1 << 17)
        );
        assert_eq!(read(&[&text], false).0, ["changed a"]);
    }

    #[test]
    fn error_event_ends_watch() {
        let status = |code: u16| {
            format!(
                r#"{{"type":"ERROR","object":{{"kind":"Status","metadata":{{}},"status":"Failure","message":"m","reason":"r","code":{code}}}}}"#
            )
        };
        assert!(matches!(read(&[&status(410)], false).2, Some(WatchEnd::Expired)));
        assert!(matches!(read(&[&status(403)], false).2, Some(WatchEnd::Refused(s)) if s.message == "m"));
        assert!(matches!(read(&["<html>"], false).2, Some(WatchEnd::Disconnected(_))));
    }
}
