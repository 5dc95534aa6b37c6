//! Sees what is there: one watch a kind, by the component's label; metadata only, but for the kinds whose status says
//! whether they work.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::core::{ApiResource, GroupVersionKind, Status};
use tokio::task::JoinHandle;

use super::seen::Seen;
use super::served;
use super::watch::{Ended, Place, Told};
use crate::health;
use crate::kinds::Kinds;
use crate::object::{Id, Kind};

/// A watch that ends sooner than this is not made anew at once.
const BRIEF: Duration = Duration::from_secs(1);
/// How often a watch of a kind that was defined a moment ago is tried at once.
const MOMENTS: u32 = 20;

/// The watches of one component on one cluster. Dropping it ends them.
pub struct Observer {
    client: Client,
    selector: Arc<str>,
    /// How old the truth may be where no watch can be held.
    poll: Duration,
    /// What is seen.
    pub seen: Arc<Seen>,
    watches: HashMap<Arc<Place>, JoinHandle<()>>,
    /// How kinds are addressed that the cluster was asked about.
    pub found: Kinds,
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.watches.values().for_each(JoinHandle::abort);
    }
}

impl Observer {
    /// Watches nothing yet. `selector` selects the component's objects; `poll`: how often those are listed that can't be watched.
    pub fn new(client: Client, selector: &str, poll: Duration) -> Self {
        Self {
            client,
            selector: selector.into(),
            poll,
            seen: Arc::default(),
            watches: HashMap::new(),
            found: Kinds::default(),
        }
    }

    /// Watches `kind` from now on, if it isn't yet: in `namespace`, if it lives in one.
    pub fn watch(&mut self, kind: &Kind, namespace: &str) {
        let namespace = if kind.namespaced { namespace } else { "" };
        self.follow(Place { kind: kind.clone(), namespace: namespace.to_owned(), name: String::new() });
    }

    /// Watches the Namespace called `name` from now on, if it isn't yet, whatever its labels are.
    pub fn watch_namespace(&mut self, name: &str) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Namespace"));
        self.follow(Place {
            kind: Kind { resource, namespaced: false },
            namespace: String::new(),
            name: name.to_owned(),
        });
    }

    fn follow(&mut self, place: Place) {
        let place = Arc::new(place);
        if self.watches.contains_key(&place) {
            return;
        }
        let watch = Watch {
            client: self.client.clone(),
            selector: Arc::clone(&self.selector),
            seen: Arc::clone(&self.seen),
            whole: health::has_health(&place.kind.resource.group, &place.kind.resource.kind),
            place: Arc::clone(&place),
            poll: self.poll,
        };
        self.watches.insert(place, tokio::spawn(watch.follow()));
    }

    /// How `gvk` is addressed: as `known` says, or as the cluster said once. What it doesn't have is asked for again.
    pub async fn address(&mut self, client: &Client, known: &Kinds, gvk: &GroupVersionKind) -> Option<Kind> {
        if let Some(kind) = known.get(gvk).or_else(|| self.found.get(gvk)) {
            return Some(kind);
        }
        let kind = super::address(client, known, gvk).await.ok().flatten()?;
        self.found.insert(gvk.clone(), kind.clone());
        Some(kind)
    }
}

/// How what is there is learnt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// By a watch that begins with what is there: one request.
    Streaming,
    /// By a list and a watch: an older API server (before Kubernetes 1.34), or one behind something that is.
    Listing,
    /// By a list now and then: it may not be watched.
    Polling,
}

/// One watch.
struct Watch {
    client: Client,
    selector: Arc<str>,
    seen: Arc<Seen>,
    place: Arc<Place>,
    whole: bool,
    poll: Duration,
}

impl Watch {
    /// Follows one kind for ever. Each watch has its own back-off; an error is told and tried again.
    async fn follow(self) {
        let (mut how, mut version, mut failures, mut moments) = (How::Streaming, String::new(), 0, MOMENTS);
        loop {
            let (started, resumed) = (Instant::now(), !version.is_empty());
            // Boxed: between its requests a watch is to hold next to nothing.
            let ended = Box::pin(self.once(how, &mut version)).await;
            let pause = match ended {
                Ended::Over if how == How::Polling => Some(self.poll),
                Ended::Over => (started.elapsed() < BRIEF).then_some(BRIEF),
                Ended::Expired => {
                    version.clear();
                    // It begins anew at once, unless it just did.
                    (!resumed).then_some(BRIEF)
                }
                Ended::Refused(status) if how == How::Streaming && unsupported(&status) => {
                    how = How::Listing;
                    None
                }
                Ended::Refused(status) if moments > 0 && served::is_initializing(&status) => {
                    moments -= 1;
                    Some(served::PAUSE)
                }
                Ended::Refused(status) => {
                    how = self.refused(how, &status);
                    version.clear();
                    self.seen.tell();
                    Some(backoff(&mut failures))
                }
                Ended::Lost(why) => {
                    tracing::debug!(kind = self.place.kind.resource.kind, why, "watch interrupted");
                    self.seen.failed();
                    self.seen.tell();
                    Some(backoff(&mut failures))
                }
            };
            if started.elapsed() > BRIEF {
                (failures, moments) = (0, MOMENTS);
            }
            let Some(pause) = pause else { continue };
            // What is defined meanwhile is not waited for any longer.
            if tokio::time::timeout(pause, self.seen.defined(&self.place.kind)).await.is_ok() {
                (failures, moments) = (0, MOMENTS);
                tokio::time::sleep(served::PAUSE).await;
            }
        }
    }

    /// One request, or two.
    async fn once(&self, how: How, version: &mut String) -> Ended {
        let mut listing = Some(HashSet::new());
        let tell = |told| self.tell(&mut listing, told);
        match how {
            How::Streaming => self.place.watch(&self.client, &self.selector, self.whole, version, tell).await,
            How::Listing | How::Polling => {
                let mut tell = tell;
                if how == How::Polling || version.is_empty() {
                    match self.place.list(&self.client, &self.selector, self.whole, &mut tell).await {
                        Ok(listed) => *version = listed,
                        Err(ended) => return ended,
                    }
                }
                // Whether it may be watched now is asked each time.
                match self.place.watch(&self.client, &self.selector, self.whole, version, tell).await {
                    Ended::Refused(_) if how == How::Polling => Ended::Over,
                    ended => ended,
                }
            }
        }
    }

    /// The API server refuses it; how it is tried from now on.
    fn refused(&self, how: How, status: &Status) -> How {
        match (status.code, how) {
            // The kind itself isn't there (yet).
            (404, _) => self.seen.unknown(&self.place.kind),
            // It may be listed, though.
            (403 | 405, How::Streaming | How::Listing) => return How::Polling,
            (403 | 405, How::Polling) => self.seen.forbidden(&self.place.kind, &status.message),
            _ => {
                tracing::debug!(kind = self.place.kind.resource.kind, status.message, "watch refused");
                self.seen.failed();
            }
        }
        if how == How::Polling { How::Streaming } else { how }
    }

    fn tell(&self, listing: &mut Option<HashSet<Id>>, told: Told) {
        let kind = &self.place.kind;
        let of = |meta: &ObjectMeta| Id {
            group: kind.resource.group.clone(),
            kind: kind.resource.kind.clone(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        };
        let health = |object| {
            if self.whole {
                health::of(&kind.resource.kind, object)
            } else {
                health::of_metadata(&kind.resource.kind, object)
            }
        };
        match told {
            Told::Listed(object) => {
                let id = of(&object.metadata);
                self.seen.told(&id, &object.metadata, health(&object), true);
                if let Some(listing) = listing {
                    listing.insert(id);
                }
                return;
            }
            Told::All(version) => {
                self.seen.all(kind, &self.place.namespace, &listing.take().unwrap_or_default(), version);
            }
            Told::Changed(object) => self.seen.told(&of(&object.metadata), &object.metadata, health(&object), false),
            Told::Gone(object) => self.seen.gone(&of(&object.metadata), &object.metadata),
        }
        self.seen.tell();
    }
}

fn unsupported(status: &Status) -> bool {
    matches!(status.code, 400 | 422) && status.message.contains("sendInitialEvents")
}

/// How long a watch rests that has failed: half a second, doubling, eight seconds at most.
fn backoff(failures: &mut u32) -> Duration {
    let pause = Duration::from_millis(500 << (*failures).min(4));
    *failures += 1;
    pause
}
