//! Requests to Knative Services while something changes, and how many fail.

use std::fmt::{self, Display, Formatter};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;
use tokio::task::{JoinHandle, JoinSet};

use super::product::ready;
use super::traffic::{self, ANSWER};
use crate::cluster::Cluster;
use crate::{Result, http};

/// Requests a second to the Knative Service that always runs.
const RATE: u32 = 50;
/// Interval of requests to the one that is scaled to zero in between.
const COLD: Duration = Duration::from_secs(10);
/// Time limit of a request.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Time with requests before and after a change.
const AROUND: Duration = Duration::from_secs(3);

/// Results of requests to one Knative Service.
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

/// Requests to both Knative Services until they are stopped.
struct Load {
    stop: Arc<AtomicBool>,
    counts: [Arc<Counts>; 2],
    tasks: [JoinHandle<()>; 2],
}

impl Load {
    fn start(gateway: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let sender = |host: String, interval: Duration| {
            let (counts, ends) = (Arc::<Counts>::default(), Arc::clone(&stop));
            let of = Arc::clone(&counts);
            let task = tokio::spawn(async move {
                let (mut tick, mut sent) = (tokio::time::interval(interval), JoinSet::new());
                while !ends.load(Ordering::Relaxed) {
                    tick.tick().await;
                    let (counts, host) = (Arc::clone(&of), host.clone());
                    sent.spawn(async move { counts.request(gateway, &host).await });
                    while sent.try_join_next().is_some() {}
                }
                sent.join_all().await;
            });
            (counts, task)
        };
        let (warm, first) = sender(traffic::host("warm"), Duration::from_secs(1) / RATE);
        let (cold, second) = sender(traffic::host("cold"), COLD);
        Self { stop, counts: [warm, cold], tasks: [first, second] }
    }

    async fn end(self) -> Result<[Arc<Counts>; 2]> {
        self.stop.store(true, Ordering::Relaxed);
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
    /// Requests to the one that is scaled to zero in between.
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

/// Creates two Knative Services on `cluster`: `warm`, which always has a Pod, and `cold`, which
/// often has none. Returns the address of their gateway once both answer.
pub async fn services(cluster: &Cluster) -> Result<SocketAddr> {
    let warm = json!({"autoscaling.knative.dev/min-scale": "1"});
    let cold = json!({"autoscaling.knative.dev/window": "6s"});
    for (name, annotations) in [("warm", warm), ("cold", cold)] {
        cluster.kubectl(&["apply", "-f", "-"], &traffic::service(name, &annotations).to_string()).await?;
    }
    let gateway = traffic::gateway(cluster).await?;
    for name in ["warm", "cold"] {
        ready(cluster, &format!("ksvc/{name}"), "default").await?;
        traffic::until_answer(gateway, &traffic::host(name), ANSWER).await?;
    }
    Ok(gateway)
}
