//! Requests to Knative Services while something changes, and how many fail.

use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};
use tokio_util::sync::CancellationToken;

use super::product::ready;
use super::traffic::{self, ANSWER};
use crate::cluster::Cluster;
use crate::{Result, http};

/// Requests a second to the Knative Service that always runs.
const RATE: u32 = 50;
/// Name of the Knative Service that always runs.
const WARM: &str = "warm";
/// Those that are scaled to zero. One gets a request in each [`INTERVAL`], in turn: no Knative
/// Service is scaled to zero sooner than 12 s after a request.
const COLD: [&str; 3] = ["cold-1", "cold-2", "cold-3"];
/// Number of requests from zero so far: a new load goes on with the next Knative Service.
static NEXT: AtomicUsize = AtomicUsize::new(0);
/// Interval of requests from zero.
const INTERVAL: Duration = Duration::from_secs(10);
/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time with requests before and after a change.
const AROUND: Duration = Duration::from_secs(3);

/// Results of requests.
#[derive(Debug, Default)]
pub struct Counts {
    done: AtomicUsize,
    failed: Mutex<Vec<String>>,
    slowest: Mutex<Duration>,
}

impl Counts {
    async fn request(&self, gateway: SocketAddr, host: &str) {
        let begun = Instant::now();
        let failure = match tokio::time::timeout(TIMEOUT, http::get_from(gateway, host, "/")).await {
            Ok(Ok((200, _))) => None,
            Ok(Ok((code, body))) => Some(format!("{code} {}", body.trim())),
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(format!("no answer in {TIMEOUT:?}")),
        };
        self.done.fetch_add(1, Ordering::Relaxed);
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).extend(failure);
        let mut slowest = self.slowest.lock().unwrap_or_else(PoisonError::into_inner);
        *slowest = begun.elapsed().max(*slowest);
    }

    /// Number of requests that failed.
    pub fn failed(&self) -> usize {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}

impl Display for Counts {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner);
        let slowest = self.slowest.lock().unwrap_or_else(PoisonError::into_inner).as_secs_f64();
        write!(f, "{} of {} requests failed", failed.len(), self.done.load(Ordering::Relaxed))?;
        if let Some(first) = failed.first() {
            write!(f, " ({first})")?;
        }
        write!(f, ", the slowest took {slowest:.2} s")
    }
}

/// Requests to Knative Services until they are stopped.
struct Load {
    stop: CancellationToken,
    counts: [Arc<Counts>; 2],
    tasks: [JoinHandle<()>; 2],
}

impl Load {
    fn start(gateway: SocketAddr) -> Self {
        let stop = CancellationToken::new();
        let sender = |name: fn() -> &'static str, interval: Duration| {
            let (counts, ends) = (Arc::<Counts>::default(), stop.clone());
            let of = Arc::clone(&counts);
            let task = tokio::spawn(async move {
                let (mut tick, mut sent) = (tokio::time::interval(interval), JoinSet::new());
                while ends.run_until_cancelled(tick.tick()).await.is_some() {
                    let (counts, host) = (Arc::clone(&of), traffic::host(name()));
                    sent.spawn(async move { counts.request(gateway, &host).await });
                    while sent.try_join_next().is_some() {}
                }
                sent.join_all().await;
            });
            (counts, task)
        };
        let (warm, first) = sender(|| WARM, Duration::from_secs(1) / RATE);
        let (cold, second) = sender(|| COLD[NEXT.fetch_add(1, Ordering::Relaxed) % COLD.len()], INTERVAL);
        Self { stop, counts: [warm, cold], tasks: [first, second] }
    }

    async fn end(self) -> Result<[Arc<Counts>; 2]> {
        self.stop.cancel();
        for task in self.tasks {
            task.await?;
        }
        Ok(self.counts)
    }
}

/// How requests went while something changed.
#[derive(Debug)]
pub struct Outcome {
    /// Duration of the change.
    pub took: Duration,
    /// Requests to the Knative Service that always runs.
    pub warm: Arc<Counts>,
    /// Requests to those that are scaled to zero in between.
    pub cold: Arc<Counts>,
}

impl Display for Outcome {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}; from zero: {}", self.warm, self.cold)
    }
}

/// Makes `change` while requests flow to the Knative Services of [`services`].
pub async fn during(gateway: SocketAddr, change: impl Future<Output = Result<()>>) -> Result<Outcome> {
    let load = Load::start(gateway);
    tokio::time::sleep(AROUND).await;
    let begun = Instant::now();
    change.await?;
    let took = begun.elapsed();
    tokio::time::sleep(AROUND).await;
    let [warm, cold] = load.end().await?;
    Ok(Outcome { took, warm, cold })
}

/// Creates the Knative Services of [`during`] on `cluster`.
pub async fn create(cluster: &Cluster) -> Result<()> {
    let warm = traffic::service(WARM, &json!({"autoscaling.knative.dev/min-scale": "1"}));
    let cold = COLD.map(|name| traffic::service(name, &json!({"autoscaling.knative.dev/window": "6s"})));
    let items = [&[warm], &cold[..]].concat();
    let all = json!({"apiVersion": "v1", "kind": "List", "items": items});
    cluster.kubectl(&["apply", "-f", "-"], &all.to_string()).await.map(drop)
}

/// Creates the Knative Services of [`during`] on `cluster`, unless they exist. Returns the address
/// of their gateway once all are Ready, the one that always runs answers, and the others are scaled
/// to zero.
pub async fn services(cluster: &Cluster) -> Result<SocketAddr> {
    create(cluster).await?;
    let gateway = traffic::gateway(cluster).await?;
    for name in [&COLD[..], &[WARM]].concat() {
        ready(cluster, &format!("ksvc/{name}"), "default").await?;
    }
    traffic::until_answer(gateway, &traffic::host(WARM), ANSWER).await?;
    for name in COLD {
        traffic::scaled_to_zero(cluster, name).await?;
    }
    Ok(gateway)
}
