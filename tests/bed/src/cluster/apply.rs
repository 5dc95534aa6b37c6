//! `kubectl apply` without starting it, which costs more than its requests: discovery, and schemas
//! of all kinds. The requests are the same, apart from lists in built-in kinds, which kubectl
//! merges and this replaces: the annotation of kubectl records what was applied, and what is not in
//! it any more is removed.

use bytes::Bytes;
use http::{Request, StatusCode};
use kube::client::Body;
use kube::core::DynamicObject;
use kube::{Client, Resource};
use serde_json::{Map, Value, json};

use super::Cluster;
use super::objects::{self, text};
use crate::waits::timed;
use crate::{Error, Result};

/// The annotation of kubectl.
const RECORD: &str = "kubectl.kubernetes.io/last-applied-configuration";
const MANAGER: &str = "kubectl-client-side-apply";
/// Namespace of an object that names none.
const NAMESPACE: &str = "default";

/// How objects are applied.
#[derive(Clone, Copy, Debug, Default)]
pub struct Terms<'a> {
    /// Whether nothing is stored (`--dry-run=server`).
    pub is_dry_run: bool,
    /// Name and groups of a user (`--as` and `--as-group`); otherwise the administrator.
    pub user: Option<(&'a str, &'a [&'a str])>,
}

/// Nothing is stored.
pub const DRY_RUN: Terms<'static> = Terms { is_dry_run: true, user: None };

impl Cluster {
    /// Applies `object`, or each item of a List, as a user does by `kubectl apply`.
    pub async fn apply(&self, object: &Value) -> Result<()> {
        let (is_applied, output) = self.try_apply(object, Terms::default()).await;
        if is_applied { Ok(()) } else { Err(output.trim().to_owned().into()) }
    }

    /// Like [`Cluster::apply`], on `terms`. Returns whether all was applied, and warnings and
    /// refusals in the words of kubectl.
    pub async fn try_apply(&self, object: &Value, terms: Terms<'_>) -> (bool, String) {
        let items = object["items"].as_array().map_or(std::slice::from_ref(object), Vec::as_slice);
        let mut requests = Requests { client: &self.client, terms, output: String::new() };
        let mut is_applied = true;
        for item in items {
            if let Err(error) = timed("apply", requests.apply(item)).await {
                is_applied = false;
                requests.print(&error.to_string());
            }
        }
        (is_applied, requests.output)
    }
}

/// The requests of one command.
struct Requests<'a> {
    client: &'a Client,
    terms: Terms<'a>,
    output: String,
}

impl Requests<'_> {
    fn print(&mut self, line: &str) {
        self.output.push_str(line);
        self.output.push('\n');
    }

    async fn apply(&mut self, object: &Value) -> Result<()> {
        let (resource, is_namespaced) = objects::resource(self.client, object).await?;
        let namespace = Some(text(object, "/metadata/namespace")).filter(|own| !own.is_empty()).unwrap_or(NAMESPACE);
        let namespace = is_namespaced.then_some(namespace);
        let all = DynamicObject::url_path(&resource, namespace);
        let url = format!("{all}/{}", text(object, "/metadata/name"));
        let wanted = recorded(object, namespace);
        let dry_run = if self.terms.is_dry_run { "&dryRun=All" } else { "" };
        let query = format!("fieldManager={MANAGER}&fieldValidation=Strict{dry_run}");
        let Some(stored) = self.get(&url).await? else {
            return self.write("POST", &format!("{all}?{query}"), "application/json", &wanted).await;
        };
        let last = stored["metadata"]["annotations"][RECORD].as_str().unwrap_or("null");
        let patch = changes(&serde_json::from_str(last)?, &stored, &wanted);
        if patch.is_empty() {
            return Ok(());
        }
        let url = format!("{url}?{query}");
        self.write("PATCH", &url, "application/merge-patch+json", &Value::Object(patch)).await
    }

    async fn get(&mut self, url: &str) -> Result<Option<Value>> {
        match self.send("GET", url, "application/json", Vec::new()).await? {
            (code, body) if code.is_success() => Ok(Some(serde_json::from_slice(&body)?)),
            (StatusCode::NOT_FOUND, _) => Ok(None),
            (code, body) => Err(refusal(code, &body)),
        }
    }

    async fn write(&mut self, method: &str, url: &str, type_: &str, body: &Value) -> Result<()> {
        let (code, body) = self.send(method, url, type_, body.to_string().into_bytes()).await?;
        if code.is_success() { Ok(()) } else { Err(refusal(code, &body)) }
    }

    async fn send(&mut self, method: &str, url: &str, type_: &str, body: Vec<u8>) -> Result<(StatusCode, Bytes)> {
        let mut request = Request::builder().method(method).uri(url).header("content-type", type_);
        if let Some((user, groups)) = self.terms.user {
            request = request.header("impersonate-user", user);
            for group in groups {
                request = request.header("impersonate-group", *group);
            }
        }
        let response = self.client.send(request.body(Body::from(body))?).await?;
        for header in response.headers().get_all("warning") {
            self.print(&format!("Warning: {}", warning(&String::from_utf8_lossy(header.as_bytes()))));
        }
        Ok((response.status(), response.into_body().collect_bytes().await?))
    }
}

/// The error of an answer with `code`, which is not one of success.
fn refusal(code: StatusCode, body: &[u8]) -> Error {
    match serde_json::from_slice(body) {
        Ok(status) => objects::words(&status).into(),
        Err(_) => format!("{code}: {}", String::from_utf8_lossy(body)).into(),
    }
}

/// The text of the header of a warning: `299 - "text"`.
fn warning(header: &str) -> String {
    let quoted = header.splitn(3, ' ').nth(2).unwrap_or(header);
    serde_json::from_str(quoted).unwrap_or_else(|_| quoted.to_owned())
}

/// `object` with the annotation that records it.
fn recorded(object: &Value, namespace: Option<&str>) -> Value {
    let mut object = object.clone();
    if let Some(namespace) = namespace {
        object["metadata"]["namespace"] = json!(namespace);
    }
    match object["metadata"]["annotations"].as_object_mut() {
        Some(annotations) => _ = annotations.remove(RECORD),
        None => object["metadata"]["annotations"] = json!({}),
    }
    let record = format!("{object}\n");
    object["metadata"]["annotations"][RECORD] = json!(record);
    object
}

/// The JSON merge patch that makes `stored` what is `wanted`: fields that were applied `last` and
/// are not wanted are removed, and others stay.
fn changes(last: &Value, stored: &Value, wanted: &Value) -> Map<String, Value> {
    let removed = last.as_object().into_iter().flat_map(Map::keys).filter(|key| wanted.get(key.as_str()).is_none());
    let mut patch: Map<_, _> = removed.map(|key| (key.clone(), Value::Null)).collect();
    for (key, new) in wanted.as_object().into_iter().flatten() {
        let now = &stored[key];
        match new {
            Value::Null if now.is_null() => {}
            Value::Object(fields) => {
                let inner = changes(&last[key], now, new);
                if !inner.is_empty() || fields.is_empty() && !now.is_object() {
                    patch.insert(key.clone(), Value::Object(inner));
                }
            }
            _ if new != now => _ = patch.insert(key.clone(), new.clone()),
            _ => {}
        }
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_applied_is_removed() {
        let last = json!({"spec": {"a": 1, "b": {"c": 1, "d": 1}, "e": 1, "list": [1]}});
        let stored = json!({"spec": {"a": 1, "b": {"c": 1, "d": 2, "other": 1}, "e": 1, "list": [1], "default": 1}});
        let wanted = json!({"spec": {"a": 1, "b": {"c": 2}, "e": null, "list": [1, 2], "new": {"f": {}, "g": null}}});
        let expected = json!({"spec": {"b": {"c": 2, "d": null}, "e": null, "list": [1, 2], "new": {"f": {}}}});
        assert_eq!(Value::Object(changes(&last, &stored, &wanted)), expected);
        assert!(changes(&Value::Null, &stored, &stored).is_empty());
    }

    #[test]
    fn record_has_no_record() {
        let object = json!({"kind": "A", "metadata": {"name": "a", "annotations": {"b": "c", RECORD: "old"}}});
        let recorded = recorded(&object, Some("n"));
        let record = recorded["metadata"]["annotations"][RECORD].as_str().unwrap();
        let plain = json!({"kind": "A", "metadata": {"name": "a", "namespace": "n", "annotations": {"b": "c"}}});
        assert_eq!(record, format!("{plain}\n"));
        assert!(changes(&plain, &recorded, &recorded).is_empty());
    }

    #[test]
    fn warnings_are_unquoted() {
        assert_eq!(warning(r#"299 - "spec: \"a\" is \\ old""#), r#"spec: "a" is \ old"#);
    }
}
