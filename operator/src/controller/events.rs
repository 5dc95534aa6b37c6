//! Events on custom resources. A background task publishes them.

use std::time::{Duration, Instant};

use http::{Request, Uri};
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knative_operator_runtime::error_text;
use knative_operator_shared::api::{Knative, KnativeFleet};
use knative_operator_shared::label::{FIELD_MANAGER, GROUP, VERSION};
use knative_operator_shared::text::{MAX_MESSAGE, shown};
use kube::Client;
use kube::client::Body;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;

use knative_operator_apply::error::is_namespace_terminating;

/// Queue length; further events are dropped.
const QUEUE: usize = 1024;
/// Retention of published events for counting repetitions: time, and number.
const RETENTION: (Duration, usize) = (Duration::from_secs(360), 256);
/// Distinct notes for one reason of one resource within the retention; further ones are counted
/// together.
const MAX_NOTES: usize = 10;
/// Note of further events; each event is in the log, too.
const OVERFLOW_NOTE: &str = "More events like this are in the log of the operator only";

/// Recent notes, each with a recorder of its own: one recorder counts events that differ only in
/// their note as repetitions of the first.
struct RecentNotes<R>(Vec<RecentNote<R>>);

struct RecentNote<R> {
    /// Uid of the resource.
    about: Option<String>,
    reason: String,
    note: Option<String>,
    last: Instant,
    recorder: R,
}

impl<R> RecentNotes<R> {
    /// The recorder for `event` about `about`. Replaces the note if there are too many.
    fn recorder(
        &mut self,
        about: &ObjectReference,
        event: &mut Event,
        now: Instant,
        new_recorder: impl FnOnce() -> R,
    ) -> &R {
        self.0.retain(|recent| now.duration_since(recent.last) < RETENTION.0);
        if self.0.len() >= RETENTION.1 {
            // The start of a fleet publishes thousands.
            self.0.clear();
        }
        let like = |recent: &RecentNote<R>| recent.about == about.uid && recent.reason == event.reason;
        let find = |notes: &[RecentNote<R>], note: &Option<String>| {
            notes.iter().position(|recent| like(recent) && recent.note == *note)
        };
        if find(&self.0, &event.note).is_none() && self.0.iter().filter(|recent| like(recent)).count() >= MAX_NOTES {
            event.note = Some(OVERFLOW_NOTE.to_owned());
        }
        let at = find(&self.0, &event.note).unwrap_or_else(|| {
            let (about, reason, note) = (about.uid.clone(), event.reason.clone(), event.note.clone());
            self.0.push(RecentNote { about, reason, note, last: now, recorder: new_recorder() });
            self.0.len() - 1
        });
        self.0[at].last = now;
        &self.0[at].recorder
    }
}

/// A client that adds the field manager to writes, which the recorder doesn't.
fn as_field_manager(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let send = move |mut request: Request<Body>| {
        let client = client.clone();
        *request.uri_mut() = with_field_manager(request.uri());
        async move { client.send(request).await }
    };
    Client::new(tower::service_fn(send), namespace)
}

/// `uri` with the field manager as last parameter.
fn with_field_manager(uri: &Uri) -> Uri {
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    let separator = if query.is_empty() || query.ends_with('&') { "" } else { "&" };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{path}?{query}{separator}fieldManager={FIELD_MANAGER}").parse().ok();
    // The appended text is ASCII, so the URI stays valid.
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

/// What an event is about.
pub trait Subject {
    /// A reference to it.
    fn reference(&self) -> ObjectReference;
}

impl Subject for Knative {
    fn reference(&self) -> ObjectReference {
        reference(VERSION, self.component().kind(), self.meta())
    }
}

impl Subject for KnativeFleet {
    fn reference(&self) -> ObjectReference {
        reference("v1alpha1", "KnativeFleet", &self.metadata)
    }
}

fn reference(version: &str, kind: &str, meta: &ObjectMeta) -> ObjectReference {
    ObjectReference {
        api_version: Some(format!("{GROUP}/{version}")),
        kind: Some(kind.to_owned()),
        namespace: meta.namespace.clone(),
        name: meta.name.clone(),
        uid: meta.uid.clone(),
        ..ObjectReference::default()
    }
}

/// Makes `event`, about `about`, one about the namespace, which is published in the namespace
/// `default`; returns that reference.
fn about_namespace(about: &ObjectReference, event: &mut Event) -> Option<ObjectReference> {
    let name = about.namespace.as_ref()?;
    let namespace = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Namespace".to_owned()),
        name: Some(name.clone()),
        ..ObjectReference::default()
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    let note = format!("{} {name}/{}: {}", text(&about.kind), text(&about.name), text(&event.note));
    event.note = Some(shown(&note, MAX_MESSAGE));
    Some(namespace)
}

/// Queue of events. Clones share it.
#[derive(Clone)]
pub struct Events(mpsc::Sender<(ObjectReference, Event)>);

impl Events {
    /// Starts to publish events on the hub as `instance`.
    pub fn start(client: Client, instance: String) -> Self {
        let (queue, mut waiting) = mpsc::channel(QUEUE);
        let client = as_field_manager(client);
        let reporter = Reporter { controller: "knative-operator".to_owned(), instance: Some(instance) };
        tokio::spawn(async move {
            let (mut notes, new_recorder) =
                (RecentNotes(Vec::new()), || Recorder::new(client.clone(), reporter.clone()));
            while let Some((about, mut event)) = waiting.recv().await {
                let recorder = notes.recorder(&about, &mut event, Instant::now(), new_recorder);
                let mut published = recorder.publish(&event, &about).await;
                if published.as_ref().is_err_and(is_namespace_terminating)
                    && let Some(namespace) = about_namespace(&about, &mut event)
                {
                    published = recorder.publish(&event, &namespace).await;
                }
                if let Err(error) = published {
                    tracing::debug!(error = error_text(&error), reason = event.reason, "failed to publish an event");
                }
            }
        });
        Self(queue)
    }

    /// Publishes a normal event.
    pub fn normal(&self, about: &impl Subject, reason: &str, note: impl Into<String>) {
        self.publish(EventType::Normal, about.reference(), reason, &note.into());
    }

    /// Publishes a warning event.
    pub fn warning(&self, about: &impl Subject, reason: &str, note: impl Into<String>) {
        self.publish(EventType::Warning, about.reference(), reason, &note.into());
    }

    fn publish(&self, type_: EventType, reference: ObjectReference, reason: &str, note: &str) {
        let note = shown(note, MAX_MESSAGE);
        let ObjectReference { kind, namespace, name, .. } = &reference;
        tracing::info!(kind, namespace, name, reason, note, "event");
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        // A full queue drops the event; the conditions have the information, too.
        let _ = self.0.try_send((reference, event));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_manager_is_the_last_parameter() {
        for (uri, expected) in [
            (
                "/apis/events.k8s.io/v1/namespaces/a/events?",
                "/apis/events.k8s.io/v1/namespaces/a/events?fieldManager=knative-operator",
            ),
            ("https://h:1/a", "https://h:1/a?fieldManager=knative-operator"),
            ("/a?b=c", "/a?b=c&fieldManager=knative-operator"),
        ] {
            assert_eq!(with_field_manager(&uri.parse().unwrap()).to_string(), expected);
        }
    }

    #[test]
    fn event_in_a_terminating_namespace_is_about_the_namespace() {
        let about = |namespace: Option<&str>| ObjectReference {
            namespace: namespace.map(str::to_owned),
            ..reference(VERSION, "KnativeServing", &ObjectMeta { name: Some("ks".into()), ..ObjectMeta::default() })
        };
        let mut event = Event {
            type_: EventType::Warning,
            reason: "Orphaned".into(),
            note: Some("Left".into()),
            action: "a".into(),
            secondary: None,
        };
        let namespace = about_namespace(&about(Some("team-a")), &mut event).unwrap();
        assert_eq!((namespace.kind.as_deref(), namespace.name.as_deref()), (Some("Namespace"), Some("team-a")));
        assert_eq!((namespace.namespace, namespace.uid), (None, None));
        assert_eq!(event.note.as_deref(), Some("KnativeServing team-a/ks: Left"));
        assert!(about_namespace(&about(None), &mut event).is_none());
    }

    #[test]
    fn distinct_notes_are_published_up_to_limit() {
        let (mut notes, start) = (RecentNotes::<usize>(Vec::new()), Instant::now());
        let about = |name: &str| ObjectReference { uid: Some(name.to_owned()), ..ObjectReference::default() };
        let mut recorders = 0;
        let mut publish = |name: &str, note: String, after: u64| {
            let mut event = Event {
                type_: EventType::Warning,
                reason: "Error".into(),
                note: Some(note),
                action: "a".into(),
                secondary: None,
            };
            let recorder = *notes.recorder(&about(name), &mut event, start + Duration::from_secs(after), || {
                recorders += 1;
                recorders
            });
            (recorder, event.note.unwrap_or_default())
        };
        assert_eq!(
            [
                publish("a", "1".into(), 0).0,
                publish("a", "2".into(), 0).0,
                publish("a", "1".into(), 0).0,
                publish("b", "1".into(), 0).0
            ],
            [1, 2, 1, 3]
        );
        let many: Vec<_> = (0..20).map(|n| publish("a", format!("n{n}"), 1)).collect();
        let last = many.last().cloned().unwrap_or_default();
        assert!(many[7] == (11, "n7".into()) && last.1 == OVERFLOW_NOTE && many[8..].iter().all(|one| *one == last));
        assert_eq!(publish("b", "5".into(), 1).1, "5");
        // Published again after the retention.
        assert_eq!(publish("a", "n19".into(), 400).1, "n19");
    }
}
