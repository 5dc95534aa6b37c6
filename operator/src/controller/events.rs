//! Events on custom resources, published off the hot path.

use std::time::{Duration, Instant};

use http::{Request, Uri};
use k8s_openapi::api::core::v1::ObjectReference;
use knative_operator_runtime::words;
use knative_operator_shared::api::Knative;
use knative_operator_shared::label::{FIELD_MANAGER, GROUP, VERSION};
use knative_operator_shared::text::{MAX_MESSAGE, clip};
use kube::Client;
use kube::client::Body;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;

/// Events that wait to be published; more are dropped.
const QUEUE: usize = 1024;
/// How long an event is remembered, to count it when it repeats, and how many are.
const REMEMBERED: (Duration, usize) = (Duration::from_secs(360), 256);
/// Notes that are told of one reason of one resource in that time; more are counted together.
const NOTES: usize = 10;
/// What is told of those: each event is logged, too.
const MORE: &str = "More like these are only in the log of the operator";

/// What was said lately, with a recorder for each note: one recorder counts as the same what differs only in its note, and goes on
/// telling the first.
struct Notes<R>(Vec<Said<R>>);

struct Said<R> {
    /// Uid of the resource.
    about: Option<String>,
    reason: String,
    note: Option<String>,
    last: Instant,
    recorder: R,
}

impl<R> Notes<R> {
    /// The recorder for `event` about `about`. If there are too many of its like, it is told as one of them.
    fn recorder(&mut self, about: &ObjectReference, event: &mut Event, now: Instant, fresh: impl FnOnce() -> R) -> &R {
        self.0.retain(|said| now.duration_since(said.last) < REMEMBERED.0);
        if self.0.len() >= REMEMBERED.1 {
            // A fleet that starts has thousands.
            self.0.clear();
        }
        let like = |said: &Said<R>| said.about == about.uid && said.reason == event.reason;
        let find =
            |notes: &[Said<R>], note: &Option<String>| notes.iter().position(|said| like(said) && said.note == *note);
        if find(&self.0, &event.note).is_none() && self.0.iter().filter(|said| like(said)).count() >= NOTES {
            event.note = Some(MORE.to_owned());
        }
        let at = find(&self.0, &event.note).unwrap_or_else(|| {
            let (about, reason, note) = (about.uid.clone(), event.reason.clone(), event.note.clone());
            self.0.push(Said { about, reason, note, last: now, recorder: fresh() });
            self.0.len() - 1
        });
        self.0[at].last = now;
        &self.0[at].recorder
    }
}

/// A client that names the field manager of what it writes: the recorder doesn't.
fn as_field_manager(client: Client) -> Client {
    let namespace = client.default_namespace().to_owned();
    let send = move |mut request: Request<Body>| {
        let client = client.clone();
        *request.uri_mut() = with_field_manager(request.uri());
        async move { client.send(request).await }
    };
    Client::new(tower::service_fn(send), namespace)
}

/// `uri` with the field manager as its last parameter.
fn with_field_manager(uri: &Uri) -> Uri {
    let (path, query) = (uri.path(), uri.query().unwrap_or_default());
    let separator = if query.is_empty() || query.ends_with('&') { "" } else { "&" };
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{path}?{query}{separator}fieldManager={FIELD_MANAGER}").parse().ok();
    // Plain ASCII behind a valid URI leaves it valid.
    Uri::from_parts(parts).unwrap_or_else(|_| uri.clone())
}

/// Where events go. Clones share the queue.
#[derive(Clone)]
pub struct Events(mpsc::Sender<(ObjectReference, Event)>);

impl Events {
    /// Publishes on the hub, as `instance`.
    pub fn start(client: Client, instance: String) -> Self {
        let (queue, mut waiting) = mpsc::channel(QUEUE);
        let client = as_field_manager(client);
        let reporter = Reporter { controller: "knative-operator".to_owned(), instance: Some(instance) };
        tokio::spawn(async move {
            let (mut notes, fresh) = (Notes(Vec::new()), || Recorder::new(client.clone(), reporter.clone()));
            while let Some((about, mut event)) = waiting.recv().await {
                let recorder = notes.recorder(&about, &mut event, Instant::now(), fresh);
                if let Err(error) = recorder.publish(&event, &about).await {
                    tracing::debug!(error = words(&error), reason = event.reason, "event not published");
                }
            }
        });
        Self(queue)
    }

    /// Something went as it should.
    pub fn normal(&self, about: &Knative, reason: &str, note: impl Into<String>) {
        self.publish(EventType::Normal, about, reason, &note.into());
    }

    /// Something did not.
    pub fn warning(&self, about: &Knative, reason: &str, note: impl Into<String>) {
        self.publish(EventType::Warning, about, reason, &note.into());
    }

    fn publish(&self, type_: EventType, about: &Knative, reason: &str, note: &str) {
        let note = clip(note, MAX_MESSAGE);
        tracing::info!(kind = %about.component(), namespace = about.namespace(), name = about.name(), reason, note, "event");
        let reference = ObjectReference {
            api_version: Some(format!("{GROUP}/{VERSION}")),
            kind: Some(about.component().kind().to_owned()),
            namespace: about.meta().namespace.clone(),
            name: about.meta().name.clone(),
            uid: about.meta().uid.clone(),
            ..ObjectReference::default()
        };
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note),
            action: "Reconcile".to_owned(),
            secondary: None,
        };
        // A full queue drops the event: it is told in the conditions too.
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
    fn what_is_said_differently_is_told_apart_up_to_a_limit() {
        let (mut notes, start) = (Notes::<usize>(Vec::new()), Instant::now());
        let about = |name: &str| ObjectReference { uid: Some(name.to_owned()), ..ObjectReference::default() };
        let mut told = 0;
        let mut tell = |name: &str, note: String, after: u64| {
            let mut event = Event {
                type_: EventType::Warning,
                reason: "Error".into(),
                note: Some(note),
                action: "a".into(),
                secondary: None,
            };
            let recorder = *notes.recorder(&about(name), &mut event, start + Duration::from_secs(after), || {
                told += 1;
                told
            });
            (recorder, event.note.unwrap_or_default())
        };
        assert_eq!(
            [
                tell("a", "1".into(), 0).0,
                tell("a", "2".into(), 0).0,
                tell("a", "1".into(), 0).0,
                tell("b", "1".into(), 0).0
            ],
            [1, 2, 1, 3]
        );
        let many: Vec<_> = (0..20).map(|n| tell("a", format!("n{n}"), 1)).collect();
        let last = many.last().cloned().unwrap_or_default();
        assert!(many[7] == (11, "n7".into()) && last.1 == MORE && many[8..].iter().all(|one| *one == last));
        assert_eq!(tell("b", "5".into(), 1).1, "5");
        // Later it is told anew.
        assert_eq!(tell("a", "n19".into(), 400).1, "n19");
    }
}
