//! Events on custom resources, published off the hot path.

use k8s_openapi::api::core::v1::ObjectReference;
use knative_operator_shared::api::Knative;
use knative_operator_shared::label::{GROUP, VERSION};
use kube::Client;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;

/// Events that wait to be published; more are dropped.
const QUEUE: usize = 1024;
/// Events that are remembered, to count them when they repeat.
const REMEMBERED: usize = 256;
/// Longest note of an event, in bytes (events.k8s.io).
const NOTE: usize = 1024;

/// Where events go. Clones share the queue.
#[derive(Clone)]
pub struct Events(mpsc::Sender<(ObjectReference, Event)>);

impl Events {
    /// Publishes on the hub, as `instance`.
    pub fn start(client: Client, instance: String) -> Self {
        let (queue, mut waiting) = mpsc::channel(QUEUE);
        let reporter = Reporter { controller: "knative-operator".to_owned(), instance: Some(instance) };
        tokio::spawn(async move {
            let (mut recorder, mut published) = (Recorder::new(client.clone(), reporter.clone()), 0);
            while let Some((about, event)) = waiting.recv().await {
                published += 1;
                if published % REMEMBERED == 0 {
                    // It remembers each event for minutes, to count those that repeat: a fleet that starts has thousands.
                    recorder = Recorder::new(client.clone(), reporter.clone());
                }
                if let Err(error) = recorder.publish(&event, &about).await {
                    tracing::debug!(%error, reason = event.reason, "event not published");
                }
            }
        });
        Self(queue)
    }

    /// Something went as it should.
    pub fn normal(&self, about: &Knative, reason: &str, note: impl Into<String>) {
        self.publish(EventType::Normal, about, reason, note.into());
    }

    /// Something did not.
    pub fn warning(&self, about: &Knative, reason: &str, note: impl Into<String>) {
        self.publish(EventType::Warning, about, reason, note.into());
    }

    fn publish(&self, type_: EventType, about: &Knative, reason: &str, mut note: String) {
        let mut end = note.len().min(NOTE);
        while !note.is_char_boundary(end) {
            end -= 1;
        }
        note.truncate(end);
        tracing::info!(kind = %about.component(), namespace = about.namespace(), name = about.name(), reason, note, "event");
        let reference = ObjectReference {
            api_version: Some(format!("{GROUP}/{VERSION}")),
            kind: Some(about.component().kind().to_owned()),
            namespace: about.meta().namespace.clone(),
            name: about.meta().name.clone(),
            uid: about.meta().uid.clone(),
            ..ObjectReference::default()
        };
        let event = Event { type_, reason: reason.to_owned(), note: Some(note), action: "Reconcile".to_owned(), secondary: None };
        // A full queue drops the event: it is told in the conditions too.
        let _ = self.0.try_send((reference, event));
    }
}
