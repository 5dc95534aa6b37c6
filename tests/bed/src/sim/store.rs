//! The objects of one simulated spoke.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};
use tokio::sync::broadcast;

use super::status;

/// Creation time of all objects.
const NOW: &str = "2026-01-01T00:00:00Z";
/// Number of changes that a watch may lag behind.
const BACKLOG: usize = 512;

/// An applied object with its owned fields. Most are equal on all spokes, and shared.
struct Body {
    text: Box<str>,
    fields: Value,
}

static BODIES: LazyLock<Mutex<HashMap<u64, Arc<Body>>>> = LazyLock::new(Mutex::default);

/// A stored object.
#[derive(Clone)]
pub struct Stored {
    body: Arc<Body>,
    manager: Arc<str>,
    uid: u64,
    version: u64,
    generation: u64,
}

/// A change.
#[derive(Clone)]
pub struct Change {
    /// `ADDED`, `MODIFIED`, `DELETED`.
    pub type_: &'static str,
    /// Path of the object.
    pub path: Arc<str>,
    /// The object.
    pub object: Stored,
}

struct Inner {
    objects: BTreeMap<Arc<str>, Stored>,
    version: u64,
    changes: broadcast::Sender<Change>,
    /// Recent changes, for watches that continue from a version.
    log: VecDeque<Change>,
}

impl Inner {
    fn publish(&mut self, change: Change) {
        if self.log.len() == BACKLOG {
            self.log.pop_front();
        }
        self.log.push_back(change.clone());
        let _ = self.changes.send(change);
    }
}

/// Objects of one spoke by path.
pub struct Store(Mutex<Inner>);

impl Default for Store {
    fn default() -> Self {
        Self(Mutex::new(Inner {
            objects: BTreeMap::new(),
            version: 1,
            changes: broadcast::channel(BACKLOG).0,
            log: VecDeque::new(),
        }))
    }
}

impl Stored {
    fn metadata(&self, body: &Value) -> Value {
        let mut metadata = body["metadata"].clone();
        let more = json!({
            "uid": format!("00000000-0000-4000-8000-{:012x}", self.uid), "resourceVersion": self.version.to_string(),
            "generation": self.generation, "creationTimestamp": NOW,
            "managedFields": [{"manager": &*self.manager, "operation": "Apply", "apiVersion": body["apiVersion"], "time": NOW, "fieldsType": "FieldsV1", "fieldsV1": self.body.fields}],
        });
        if let (Value::Object(metadata), Value::Object(more)) = (&mut metadata, more) {
            metadata.extend(more);
        }
        metadata
    }

    /// The object as JSON; only its metadata if `metadata_only`.
    pub fn show(&self, metadata_only: bool) -> Value {
        let mut body: Value = serde_json::from_str(&self.body.text).unwrap_or_default();
        let metadata = self.metadata(&body);
        if metadata_only {
            return json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": metadata});
        }
        body["metadata"] = metadata;
        if let Some(status) = status::of(&body, self.generation, NOW) {
            body["status"] = status;
        }
        body
    }

    /// Whether it has the labels in `selector` (`a=b,c=d`).
    pub fn matches(&self, selector: &str) -> bool {
        let body: Value = serde_json::from_str(&self.body.text).unwrap_or_default();
        let has = |part: &str| {
            part.split_once('=')
                .is_none_or(|(key, value)| body["metadata"]["labels"][key] == value.trim_start_matches('='))
        };
        selector.split(',').filter(|part| !part.is_empty()).all(has)
    }
}

impl Store {
    /// Applies the object in `text` at `path`; returns it, and whether it is new.
    pub fn apply(&self, path: &str, text: &str, manager: &str) -> Option<(Stored, bool)> {
        let body = interned(text)?;
        let mut inner = lock(&self.0);
        let before = inner.objects.get(path).cloned();
        if let Some(same) = before.as_ref().filter(|b| Arc::ptr_eq(&b.body, &body)) {
            return Some((same.clone(), false));
        }
        inner.version += 1;
        let (version, new) = (inner.version, before.is_none());
        let (uid, generation) = before.map_or((version, 1), |b| (b.uid, b.generation + 1));
        let stored = Stored { body, manager: manager.into(), uid, version, generation };
        let path: Arc<str> = path.into();
        inner.objects.insert(Arc::clone(&path), stored.clone());
        inner.publish(Change { type_: if new { "ADDED" } else { "MODIFIED" }, path, object: stored.clone() });
        Some((stored, new))
    }

    /// Deletes the object at `path`, with a Namespace its objects; returns whether it existed.
    pub fn delete(&self, path: &str) -> bool {
        let mut inner = lock(&self.0);
        let within =
            path.strip_prefix("/api/v1").map(|rest| format!("{rest}/")).filter(|rest| rest.starts_with("/namespaces/"));
        let gone = |key: &Arc<str>| {
            &**key == path
                || within.as_ref().is_some_and(|w| path.matches('/').count() == 4 && key.contains(w.as_str()))
        };
        let all: Vec<Arc<str>> = inner.objects.keys().filter(|k| gone(k)).cloned().collect();
        let there = !all.is_empty();
        for path in all {
            inner.version += 1;
            let version = inner.version;
            if let Some(mut object) = inner.objects.remove(&path) {
                object.version = version;
                inner.publish(Change { type_: "DELETED", path, object });
            }
        }
        there
    }

    /// The object at `path`.
    pub fn get(&self, path: &str) -> Option<Stored> {
        lock(&self.0).objects.get(path).cloned()
    }

    /// The objects below `collection`, their version, and future changes.
    pub fn list(&self, collection: &str) -> (Vec<Stored>, u64, broadcast::Receiver<Change>) {
        let inner = lock(&self.0);
        let objects = inner
            .objects
            .iter()
            .filter(|(path, _)| below(collection, path))
            .map(|(_, object)| object.clone())
            .collect();
        (objects, inner.version, inner.changes.subscribe())
    }

    /// Changes since `version`, and future ones; `None` if the version is too old.
    pub fn since(&self, version: u64) -> Option<(Vec<Change>, broadcast::Receiver<Change>)> {
        let inner = lock(&self.0);
        // Every version is one change: missing ones were dropped.
        let kept = inner.log.front().map_or(inner.version + 1, |first| first.object.version);
        let later = inner.log.iter().filter(|change| change.object.version > version).cloned().collect();
        (version + 1 >= kept).then(|| (later, inner.changes.subscribe()))
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        lock(&self.0).objects.len()
    }
}

/// Whether `path` is in `collection`: `/api/v1/namespaces/a/secrets`, or `/api/v1/secrets` for all
/// namespaces.
pub fn below(collection: &str, path: &str) -> bool {
    if path.strip_prefix(collection).is_some_and(|rest| rest.starts_with('/') && rest.matches('/').count() == 1) {
        return true;
    }
    let Some((group, plural)) = collection.rsplit_once('/') else { return false };
    let Some(rest) = path.strip_prefix(group).and_then(|rest| rest.strip_prefix("/namespaces/")) else { return false };
    !group.contains("/namespaces") && rest.split('/').nth(1) == Some(plural) && rest.split('/').count() == 3
}

fn interned(text: &str) -> Option<Arc<Body>> {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    let key = hasher.finish();
    if let Some(body) = lock(&BODIES).get(&key) {
        return Some(Arc::clone(body));
    }
    let object: Value = serde_json::from_str(text).ok()?;
    let body = Arc::new(Body { text: text.into(), fields: owned(&object) });
    lock(&BODIES).insert(key, Arc::clone(&body));
    Some(body)
}

/// The owned fields of `object`, as the API server records them; lists count as atomic.
fn owned(object: &Value) -> Value {
    let mut fields = fields(object);
    if let Value::Object(top) = &mut fields {
        ["f:apiVersion", "f:kind", "f:status"].iter().for_each(|key| drop(top.remove(*key)));
    }
    fields
}

fn fields(value: &Value) -> Value {
    match value {
        Value::Object(parts) => {
            Value::Object(parts.iter().map(|(key, part)| (format!("f:{key}"), fields(part))).collect())
        }
        _ => Value::Object(Map::new()),
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
