//! One watch, read line by line: of an event only what is asked of it is ever held, and between events nothing. (kube-rs' own
//! keeps a buffer as large as the largest event for each watch: a fleet has twenty watches a cluster.)

use http::{Request, Response};
use http_body_util::{BodyExt, Limited};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::client::Body;
use kube::core::{Status, params};
use kube::{Client, api};
use serde::Deserialize;

use crate::health::Watched;
use crate::object::{self, Kind};

/// How long a watch lasts at most, in seconds: a silent spoke shows within this and a few more.
const WATCH_SECONDS: u32 = 240;
/// Longest event, in bytes: an object has 1.5 MiB at most where it is stored.
const EVENT: usize = 8 << 20;
/// Longest list or answer of another kind, in bytes.
const LIST: usize = 64 << 20;
/// Marks the end of what a watch begins with.
const INITIAL_END: &str = "k8s.io/initial-events-end";

/// What is watched.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The kind.
    pub kind: Kind,
    /// The namespace; empty for what lives in none.
    pub namespace: String,
    /// The only object, whatever its labels are; empty for all that have the labels.
    pub name: String,
}

/// What a watch tells.
pub enum Told {
    /// It is there, at the beginning.
    Listed(Watched),
    /// That was all that there was at this resourceVersion.
    All(u64),
    /// It is as given.
    Changed(Watched),
    /// It is gone; that was its last state.
    Gone(Watched),
}

/// How a watch ended.
#[derive(Debug)]
pub enum Ended {
    /// As every watch does after a while: it goes on with another one.
    Over,
    /// What it would go on from is not known any more: it has to begin anew.
    Expired,
    /// The API server refuses it.
    Refused(Box<Status>),
    /// The connection is lost, or makes no sense.
    Lost(String),
}

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    type_: Type,
    object: Watched,
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
    #[serde(default)]
    items: Vec<Watched>,
}

impl Place {
    fn url(&self) -> String {
        use kube::Resource;
        let namespace = Some(self.namespace.as_str()).filter(|_| self.kind.namespaced && !self.namespace.is_empty());
        kube::core::DynamicObject::url_path(&self.kind.resource, namespace)
    }

    fn only(&self) -> String {
        format!("metadata.name={}", self.name)
    }

    /// Watches what has `labels`, with its status if `whole`; from `version` on, or, if that is empty, from what is there. `version` moves on.
    pub async fn watch(
        &self,
        client: &Client,
        labels: &str,
        whole: bool,
        version: &mut String,
        mut tell: impl FnMut(Told),
    ) -> Ended {
        let mut params = api::WatchParams::default().timeout(WATCH_SECONDS);
        params = if self.name.is_empty() { params.labels(labels) } else { params.fields(&self.only()) };
        params.send_initial_events = version.is_empty();
        let request = kube::core::Request::new(self.url());
        // The version 0 is any: the newest that the API server has at hand.
        let from = if version.is_empty() { "0" } else { version.as_str() };
        let request = if whole { request.watch(&params, from) } else { request.watch_metadata(&params, from) };
        let mut body = match answer(client, request).await {
            Ok(answer) => answer.into_body(),
            Err(ended) => return ended,
        };
        let mut initial = version.is_empty();
        let mut line = Vec::new();
        loop {
            let frame = match body.frame().await {
                None => return Ended::Over,
                Some(Err(error)) => return Ended::Lost(knative_operator_runtime::words(&error)),
                Some(Ok(frame)) => frame,
            };
            let Ok(data) = frame.into_data() else { continue };
            for piece in data.split_inclusive(|byte| *byte == b'\n') {
                if line.len() + piece.len() > EVENT {
                    return Ended::Lost(format!("an event of a watch is longer than {EVENT} bytes"));
                }
                let whole = piece.ends_with(b"\n");
                let text = if line.is_empty() && whole {
                    piece
                } else {
                    line.extend_from_slice(piece);
                    line.as_slice()
                };
                if !whole {
                    continue;
                }
                if let Err(ended) = event(text, &mut initial, version, &mut tell) {
                    return ended;
                }
                line = Vec::new();
            }
        }
    }

    /// Lists what has `labels`; the version to watch from.
    pub async fn list(
        &self,
        client: &Client,
        labels: &str,
        whole: bool,
        mut tell: impl FnMut(Told),
    ) -> Result<String, Ended> {
        let params = params::ListParams::default();
        let params = if self.name.is_empty() { params.labels(labels) } else { params.fields(&self.only()) };
        let request = kube::core::Request::new(self.url());
        let request = if whole { request.list(&params) } else { request.list_metadata(&params) };
        let body = Limited::new(answer(client, request).await?.into_body(), LIST)
            .collect()
            .await
            .map_err(|e| Ended::Lost(e.to_string()))?;
        let list: List =
            serde_json::from_slice(&body.to_bytes()).map_err(|e| Ended::Lost(format!("a list makes no sense: {e}")))?;
        list.items.into_iter().for_each(|object| tell(Told::Listed(object)));
        tell(Told::All(object::version(&list.metadata)));
        Ok(list.metadata.resource_version.unwrap_or_default())
    }
}

/// Tells what one line of a watch says.
fn event(line: &[u8], initial: &mut bool, version: &mut String, tell: &mut impl FnMut(Told)) -> Result<(), Ended> {
    if line.trim_ascii().is_empty() {
        return Ok(());
    }
    let nonsense = |e: serde_json::Error| Ended::Lost(format!("an event of a watch makes no sense: {e}"));
    let Event { type_, object } = serde_json::from_slice(line).map_err(nonsense)?;
    if matches!(type_, Type::Error) {
        let Failure { object } = serde_json::from_slice(line).map_err(nonsense)?;
        return Err(if matches!(object.code, 410 | 504) { Ended::Expired } else { Ended::Refused(Box::new(object)) });
    }
    // What a watch begins with comes in any order: only its end says how far it is.
    let ends = matches!(type_, Type::Bookmark)
        && object.metadata.annotations.as_ref().is_some_and(|a| a.contains_key(INITIAL_END));
    if (!*initial || ends)
        && let Some(newer) = &object.metadata.resource_version
    {
        version.clone_from(newer);
    }
    match type_ {
        Type::Added | Type::Modified if *initial => tell(Told::Listed(object)),
        Type::Added | Type::Modified => tell(Told::Changed(object)),
        Type::Deleted => tell(Told::Gone(object)),
        Type::Bookmark if ends => {
            *initial = false;
            tell(Told::All(object::version(&object.metadata)));
        }
        Type::Bookmark | Type::Error => {}
    }
    Ok(())
}

/// The answer to `request`, if it is a good one.
async fn answer(
    client: &Client,
    request: Result<Request<Vec<u8>>, kube::core::request::Error>,
) -> Result<Response<Body>, Ended> {
    let request = request.map_err(|e| Ended::Lost(e.to_string()))?;
    let answer =
        client.send(request.map(Body::from)).await.map_err(|e| Ended::Lost(knative_operator_runtime::words(&e)))?;
    let code = answer.status();
    if code.is_success() {
        return Ok(answer);
    }
    let body = Limited::new(answer.into_body(), EVENT).collect().await.map_err(|e| Ended::Lost(e.to_string()))?;
    let status = serde_json::from_slice::<Status>(&body.to_bytes());
    let mut status =
        status.unwrap_or_else(|_| Status::failure(&format!("the API server answers {code} with no Status"), "Unknown"));
    status.code = code.as_u16();
    Err(if code.as_u16() == 410 { Ended::Expired } else { Ended::Refused(Box::new(status)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str], mut initial: bool) -> (Vec<String>, String, Option<Ended>) {
        let (mut told, mut version) = (Vec::new(), String::new());
        let mut tell = |what: Told| {
            told.push(match what {
                Told::Listed(object) => format!("listed {}", object.metadata.name.unwrap_or_default()),
                Told::All(version) => format!("all at {version}"),
                Told::Changed(object) => format!("changed {}", object.metadata.name.unwrap_or_default()),
                Told::Gone(object) => format!("gone {}", object.metadata.name.unwrap_or_default()),
            });
        };
        let ended = lines.iter().find_map(|line| event(line.as_bytes(), &mut initial, &mut version, &mut tell).err());
        (told, version, ended)
    }

    #[test]
    fn a_watch_begins_with_what_is_there() {
        let (told, version, ended) = read(
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
        assert_eq!(told, ["listed b", "listed a", "all at 12", "changed a", "gone b"]);
        assert_eq!((version.as_str(), ended.is_none()), ("20", true));
    }

    #[test]
    fn an_error_ends_it() {
        let status = |code: u16| {
            format!(
                r#"{{"type":"ERROR","object":{{"kind":"Status","metadata":{{}},"status":"Failure","message":"m","reason":"r","code":{code}}}}}"#
            )
        };
        assert!(matches!(read(&[&status(410)], false).2, Some(Ended::Expired)));
        assert!(matches!(read(&[&status(403)], false).2, Some(Ended::Refused(s)) if s.message == "m"));
        assert!(matches!(read(&["<html>"], false).2, Some(Ended::Lost(_))));
    }
}
