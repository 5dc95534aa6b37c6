//! Faults between a process and an API server, by a seeded schedule, in the manner of Sieve (OSDI
//! '22). A [`Chaos`] is the interceptor of a [`crate::gate::Gate`].
//!
//! Whether a request is hit depends on the seed, the window, and the number of equal requests
//! before, and not on the order of concurrent requests. So a seed repeats its faults, as far as the
//! process repeats its requests.

use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use serde_json::json;

use crate::gate::{Answer, Body, Interceptor, Upstream};

mod schedule;
mod stale;
mod watch;

pub use schedule::{Fault, Schedule, Stage, Window};

/// Injects faults while it has a schedule.
#[derive(Default)]
pub struct Chaos {
    active: Mutex<Option<Active>>,
    requests: AtomicUsize,
    writes: AtomicUsize,
    injected: AtomicUsize,
    /// Requests without a response, other than watches.
    pending: Mutex<HashMap<usize, (String, Instant)>>,
}

struct Active {
    schedule: Arc<Schedule>,
    started: Instant,
    /// The resourceVersion of the API server at the start, which stale responses have.
    version: u64,
    /// Number of equal requests in each window.
    counts: HashMap<(usize, String), u64>,
}

impl Chaos {
    /// Starts `schedule` for an API server whose resourceVersion is `version`.
    pub fn start(&self, schedule: &Arc<Schedule>, version: u64) {
        let schedule = Arc::clone(schedule);
        *self.lock() = Some(Active { schedule, started: Instant::now(), version, counts: HashMap::new() });
    }

    /// Requests without a response, other than watches, and for how long.
    pub fn pending(&self) -> Vec<String> {
        let pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        pending.values().map(|(name, since)| format!("{name} since {:.1} s", since.elapsed().as_secs_f64())).collect()
    }

    fn version(&self) -> u64 {
        self.lock().as_ref().map_or(0, |active| active.version)
    }

    /// Ends all faults.
    pub fn stop(&self) {
        *self.lock() = None;
    }

    /// Number of requests, and of faults in them.
    pub fn counts(&self) -> (usize, usize) {
        (self.requests.load(Ordering::Relaxed), self.injected.load(Ordering::Relaxed))
    }

    /// Number of requests that are no reads.
    pub fn writes(&self) -> usize {
        self.writes.load(Ordering::Relaxed)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fault that hits `request` now, if any, and the rest of its window.
    fn hit(&self, request: &str, is_hit: impl Fn(&Window) -> bool) -> Option<(Fault, Duration)> {
        let mut active = self.lock();
        let Active { schedule, started, counts, .. } = active.as_mut()?;
        let now = started.elapsed();
        let due = schedule.windows.iter().enumerate();
        for (index, window) in due.filter(|(_, window)| window.contains(now) && is_hit(window)) {
            let count = counts.entry((index, request.to_owned())).or_default();
            *count += 1;
            let mut hasher = DefaultHasher::new();
            (schedule.seed, index, request, *count).hash(&mut hasher);
            if hasher.finish() % 100 < u64::from(window.percent) {
                self.injected.fetch_add(1, Ordering::Relaxed);
                return Some((window.fault, window.end.saturating_sub(now)));
            }
        }
        None
    }
}

/// A request without a response, while this value lives.
struct Pending(Arc<Chaos>, usize);

impl Pending {
    fn new(chaos: &Arc<Chaos>, number: usize, name: &str) -> Self {
        let pending = (name.to_owned(), Instant::now());
        chaos.pending.lock().unwrap_or_else(PoisonError::into_inner).insert(number, pending);
        Self(Arc::clone(chaos), number)
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        self.0.pending.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.1);
    }
}

impl Interceptor for Chaos {
    fn answer(self: Arc<Self>, server: Upstream, request: Request<Incoming>) -> BoxFuture<'static, Answer> {
        Box::pin(async move {
            let number = self.requests.fetch_add(1, Ordering::Relaxed);
            let (is_read, is_watch) = (request.method() == Method::GET, is_watch(&request));
            self.writes.fetch_add(usize::from(!is_read), Ordering::Relaxed);
            let name = format!("{} {}", request.method(), request.uri().path());
            let _pending = (!is_watch).then(|| Pending::new(&self, number, &name));
            let is_hit = |window: &Window| window.fault.hits(is_read, is_watch);
            if let Some((fault, rest)) = self.hit(&name, is_hit) {
                if fault == Fault::Stale {
                    return stale::answer(self.version(), rest, &server, request).await;
                }
                return inject(fault, rest, &server, request).await;
            }
            let answer = server.send(request).await?;
            Ok(if is_watch { answer.map(|body| watch::body(self, name, body)) } else { answer })
        })
    }
}

fn is_watch(request: &Request<Incoming>) -> bool {
    let parameters = request.uri().query().unwrap_or_default().split('&');
    parameters.into_iter().any(|parameter| ["watch=true", "watch=1"].contains(&parameter))
}

async fn inject(fault: Fault, rest: Duration, server: &Upstream, request: Request<Incoming>) -> Answer {
    match fault {
        Fault::Status { code, retry_after, stage } => {
            if stage == Stage::After {
                handle(server, request).await?;
            }
            Ok(status(code, retry_after))
        }
        Fault::Reset(stage) => {
            if stage == Stage::After {
                handle(server, request).await?;
            }
            Err(io::Error::other("reset"))
        }
        Fault::Cut => {
            let (parts, body) = server.send(request).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            let half = body.slice(..body.len() / 2);
            let pieces = [Ok(hyper::body::Frame::data(half)), Err(io::Error::other("cut"))];
            let body = http_body_util::StreamBody::new(futures::stream::iter(pieces));
            Ok(Response::from_parts(parts, body.boxed_unsync()))
        }
        Fault::Delay(delay) => {
            tokio::time::sleep(delay).await;
            server.send(request).await
        }
        Fault::Hang => {
            tokio::time::sleep(rest).await;
            Err(io::Error::other("no answer"))
        }
        // Of reads, and of watches that have begun.
        Fault::Stale
        | Fault::WatchCut
        | Fault::WatchExpired
        | Fault::WatchDelay(_)
        | Fault::WatchRepeat
        | Fault::WatchNoBookmarks => server.send(request).await,
    }
}

/// Sends `request`, and waits until it is handled.
async fn handle(server: &Upstream, request: Request<Incoming>) -> io::Result<()> {
    let is_watch = is_watch(&request);
    let response = server.send(request).await?;
    if !is_watch {
        drop(response.into_body().collect().await);
    }
    Ok(())
}

/// A response of an API server with an error.
fn status(code: u16, retry_after: Option<u16>) -> Response<Body> {
    let reason = match code {
        401 => "Unauthorized",
        409 => "Conflict",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "injected", "reason": reason, "code": code});
    let mut response = Response::builder().status(code).header("content-type", "application/json");
    if let Some(seconds) = retry_after {
        response = response.header("retry-after", seconds);
    }
    let body = Full::new(Bytes::from(status.to_string())).map_err(|never| match never {}).boxed_unsync();
    response.body(body).unwrap_or_default()
}
