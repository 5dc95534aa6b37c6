//! Observes a cluster: one watch per kind, selected by the component's label. Metadata only, except
//! for kinds whose status tells their health.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use knative_operator_runtime::backoff::Backoff;
use knative_operator_runtime::watch_activity::WatchActivity;
use kube::Client;
use kube::core::{ApiResource, GroupVersionKind, Status};
use tokio::task::JoinHandle;

use super::observed::{ObservedState, Seen};
use super::renewal::duration_of;
use super::served;
use super::watch::{WatchEnd, WatchEvent, WatchTarget};
use knative_operator_objects::Kinds;
use knative_operator_objects::health::{self, WatchedObject};
use knative_operator_objects::{Id, Kind};

/// Minimum duration of a watch; one that ends sooner is not restarted immediately.
const MIN_WATCH_DURATION: Duration = Duration::from_secs(1);
/// Delays after failures of a watch.
const BACKOFF: Backoff = Backoff::new(Duration::from_millis(500), Duration::from_secs(8));
/// Immediate retries of a watch whose kind was defined a moment ago.
const INITIALIZING_RETRIES: u32 = 20;

/// How the clusters of this process are watched.
#[derive(Clone, Debug, Default)]
pub struct Watching {
    /// Interval of lists, where no watch is allowed.
    pub poll: Duration,
    /// How many there are now: the watches of very many are renewed less often.
    pub clusters: Arc<AtomicUsize>,
}

/// The watches of one component on one cluster. They end when it is dropped.
pub struct Observer {
    client: Client,
    selector: Arc<str>,
    watching: Watching,
    /// Since when there are watches, by which their renewals are spread in time.
    started: Instant,
    /// Observed state.
    pub observed: Arc<ObservedState>,
    watches: HashMap<Arc<WatchTarget>, JoinHandle<()>>,
    /// Kinds that were resolved by discovery.
    pub discovered: Kinds,
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.watches.values().for_each(JoinHandle::abort);
    }
}

impl Observer {
    /// An observer without watches. `selector` selects the component's objects.
    pub fn new(client: Client, selector: &str, watching: &Watching) -> Self {
        Self {
            client,
            selector: selector.into(),
            watching: watching.clone(),
            started: Instant::now(),
            observed: Arc::default(),
            watches: HashMap::new(),
            discovered: Kinds::default(),
        }
    }

    /// Starts the watch of `kind`, if there is none: in `namespace`, if the kind is namespaced.
    pub fn watch(&mut self, kind: &Kind, namespace: &str) {
        self.start(WatchTarget::labeled(kind.clone(), namespace));
    }

    /// Starts the watch of the Namespace `name`, regardless of its labels, if there is none.
    pub fn watch_namespace(&mut self, name: &str) {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Namespace"));
        self.watch_one(&Kind { resource, namespaced: false }, "", name);
    }

    /// Starts the watch of one object of `kind`, regardless of its labels, if there is none.
    pub fn watch_one(&mut self, kind: &Kind, namespace: &str, name: &str) {
        self.start(WatchTarget { kind: kind.clone(), namespace: namespace.to_owned(), name: name.to_owned() });
    }

    fn start(&mut self, target: WatchTarget) {
        let target = Arc::new(target);
        if self.watches.contains_key(&target) {
            return;
        }
        let watch = Watch {
            client: self.client.clone(),
            selector: Arc::clone(&self.selector),
            observed: Arc::clone(&self.observed),
            with_status: health::has_health(&target.kind.resource.group, &target.kind.resource.kind),
            activity: self.observed.watches.add(&target),
            target: Arc::clone(&target),
            watching: self.watching.clone(),
            index: self.watches.len(),
            all_started: self.started,
        };
        self.watches.insert(target, tokio::spawn(watch.run()));
    }

    /// Resource name and scope of `gvk`, from `known`, from earlier discovery, or by discovery. A
    /// kind that the cluster lacks is looked up each time, and observed as not served. If the
    /// lookup fails, the state of its objects is unknown.
    pub async fn resolve_kind(&mut self, client: &Client, known: &Kinds, gvk: &GroupVersionKind) -> Option<Kind> {
        if let Some(kind) = known.get(gvk).or_else(|| self.discovered.get(gvk)) {
            return Some(kind);
        }
        match super::resolve_kind(client, known, gvk).await {
            Ok(Some(kind)) => {
                self.discovered.insert(gvk.clone(), kind.clone());
                Some(kind)
            }
            Ok(None) => {
                self.observed.mark_unserved(&gvk.group, &gvk.kind);
                None
            }
            Err(error) => {
                let why = super::undiscovered(&gvk.kind, &gvk.group, &error);
                self.observed.record_undiscovered(&gvk.group, &gvk.kind, why.to_string());
                None
            }
        }
    }
}

/// How a kind is observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WatchMode {
    /// By a watch that begins with the initial objects: one request.
    Streaming,
    /// By a list and a watch: for API servers before Kubernetes 1.34.
    Listing,
    /// By a periodic list: watching is forbidden.
    Polling,
}

/// The watch of one kind.
struct Watch {
    client: Client,
    selector: Arc<str>,
    observed: Arc<ObservedState>,
    activity: Arc<WatchActivity>,
    target: Arc<WatchTarget>,
    with_status: bool,
    watching: Watching,
    /// Its number among the watches of its observer, which started then.
    index: usize,
    all_started: Instant,
}

impl Watch {
    /// Watches one kind until the task ends. Each watch backs off by itself.
    async fn run(self) {
        let (mut mode, mut version, mut failures, mut retries_left) =
            (WatchMode::Streaming, String::new(), 0, INITIALIZING_RETRIES);
        loop {
            let (started, resumed) = (Instant::now(), !version.is_empty());
            self.activity.begin();
            // Boxed, so that a waiting watch uses little memory.
            let end = Box::pin(self.watch_once(mode, &mut version)).await;
            let pause = match end {
                WatchEnd::Completed if mode == WatchMode::Polling => Some(self.watching.poll),
                WatchEnd::Completed => (started.elapsed() < MIN_WATCH_DURATION).then(|| pause_after(&mut failures)),
                WatchEnd::Expired => {
                    version.clear();
                    // Or the versions are those of another cluster behind the same server.
                    self.observed.record_watch_failure();
                    // Restart immediately, unless this watch has just been restarted.
                    (!resumed).then(|| pause_after(&mut failures))
                }
                WatchEnd::Refused(status) if mode == WatchMode::Streaming && is_unsupported(&status) => {
                    mode = WatchMode::Listing;
                    None
                }
                WatchEnd::Refused(status) if retries_left > 0 && served::is_initializing(&status) => {
                    retries_left -= 1;
                    Some(served::PAUSE)
                }
                WatchEnd::Refused(status) => {
                    mode = self.mode_after_refusal(mode, &status);
                    version.clear();
                    self.observed.notify();
                    Some(pause_after(&mut failures))
                }
                WatchEnd::Disconnected(why) => {
                    tracing::debug!(kind = self.target.kind.resource.kind, why, "watch interrupted");
                    self.observed.record_watch_failure();
                    self.observed.notify();
                    Some(pause_after(&mut failures))
                }
            };
            if started.elapsed() > MIN_WATCH_DURATION {
                (failures, retries_left) = (0, INITIALIZING_RETRIES);
            }
            let Some(pause) = pause else { continue };
            // A new definition of the kind ends the wait.
            if tokio::time::timeout(pause, self.observed.wait_until_defined(&self.target.kind)).await.is_ok() {
                (failures, retries_left) = (0, INITIALIZING_RETRIES);
                tokio::time::sleep(served::PAUSE).await;
            }
        }
    }

    /// Runs one watch, after a list if the mode needs one.
    async fn watch_once(&self, mode: WatchMode, version: &mut String) -> WatchEnd {
        let mut listing = Some(HashSet::new());
        let handle = |event| self.handle(&mut listing, event);
        let clusters = self.watching.clusters.load(Ordering::Relaxed);
        let duration = || duration_of(self.index, clusters, self.all_started.elapsed());
        match mode {
            WatchMode::Streaming => {
                self.target.watch(&self.client, &self.selector, self.with_status, version, duration(), handle).await
            }
            WatchMode::Listing | WatchMode::Polling => {
                let mut handle = handle;
                if mode == WatchMode::Polling || version.is_empty() {
                    match self.target.list(&self.client, &self.selector, self.with_status, &mut handle).await {
                        Ok(listed) => *version = listed,
                        Err(end) => return end,
                    }
                }
                // Watching may be allowed by now, so it is tried each time.
                let (client, selector) = (&self.client, &self.selector);
                match self.target.watch(client, selector, self.with_status, version, duration(), handle).await {
                    WatchEnd::Refused(_) if mode == WatchMode::Polling => WatchEnd::Completed,
                    end => end,
                }
            }
        }
    }

    /// Handles the API server's refusal; returns the mode of the next try.
    fn mode_after_refusal(&self, mode: WatchMode, status: &Status) -> WatchMode {
        match (status.code, mode) {
            // The API server doesn't serve the kind (yet).
            (404, _) => self.observed.record_absent_kind(&self.target.kind),
            // Listing may still be allowed.
            (403 | 405, WatchMode::Streaming | WatchMode::Listing) => return WatchMode::Polling,
            (403 | 405, WatchMode::Polling) => self.observed.record_unwatchable(&self.target.kind, &status.message),
            _ => {
                tracing::debug!(kind = self.target.kind.resource.kind, status.message, "watch refused");
                self.observed.record_watch_failure();
            }
        }
        if mode == WatchMode::Polling { WatchMode::Streaming } else { mode }
    }

    /// Whether another watch reports the object.
    fn is_of_another(&self, id: &Id) -> bool {
        self.target.name.is_empty() && self.observed.is_unlabeled(id)
    }

    fn handle(&self, listing: &mut Option<HashSet<Id>>, event: WatchEvent) {
        self.activity.event();
        let kind = &self.target.kind;
        let of = |meta: &ObjectMeta| Id {
            group: kind.resource.group.clone(),
            kind: kind.resource.kind.clone(),
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
        };
        let seen = |object: &WatchedObject| {
            let kind = &kind.resource.kind;
            if self.with_status {
                Seen { health: health::of(kind, object), replicas: object.replicas(kind) }
            } else {
                Seen { health: health::of_metadata(kind, object), replicas: None }
            }
        };
        match event {
            WatchEvent::InitApply(object) => {
                let id = of(&object.metadata);
                self.observed.record_event(&id, &object.metadata, seen(&object), true);
                if let Some(listing) = listing {
                    listing.insert(id);
                }
                return;
            }
            WatchEvent::InitDone(version) => {
                self.observed.record_list(&self.target, &listing.take().unwrap_or_default(), version);
            }
            // An object that loses the label leaves the selection of the watch, but still exists.
            WatchEvent::Apply(object) | WatchEvent::Delete(object) if self.is_of_another(&of(&object.metadata)) => {}
            WatchEvent::Apply(object) => {
                self.observed.record_event(&of(&object.metadata), &object.metadata, seen(&object), false);
            }
            WatchEvent::Delete(object) => self.observed.record_deletion(&of(&object.metadata), &object.metadata),
        }
        self.observed.notify();
    }
}

fn is_unsupported(status: &Status) -> bool {
    matches!(status.code, 400 | 422) && status.message.contains("sendInitialEvents")
}

/// Counts a failure of a watch; returns the time to the next one.
fn pause_after(failures: &mut u32) -> Duration {
    *failures += 1;
    BACKOFF.after(*failures)
}
