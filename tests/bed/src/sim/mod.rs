//! Simulated spokes, a thousand in one process: a small API server that implements what the
//! operator uses (HTTPS, HTTP/2, server-side apply, get, list, watch, delete) and makes everything
//! available immediately. It has no admission, no controllers except [`status`], and no merging of
//! other managers' fields.
//!
//! All spokes share a port: the first part of the path selects the spoke, since a ClusterProfile's
//! server may have a path.

mod serve;
mod status;
mod store;

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use base64::{Engine, prelude::BASE64_STANDARD};
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto::Builder;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::Result;
use crate::pki::Authority;
use store::{Store, lock};

/// A fleet of simulated spokes. Dropping it stops them.
pub struct Sim {
    address: SocketAddr,
    authority: String,
    spokes: Arc<Vec<Spoke>>,
    accept: JoinHandle<()>,
    /// A port that accepts connections and never answers.
    hole: SocketAddr,
    silence: JoinHandle<()>,
}

/// A simulated spoke.
#[derive(Default)]
pub struct Spoke {
    store: Store,
    /// Number of requests by verb.
    requests: Mutex<HashMap<&'static str, usize>>,
    open: AtomicUsize,
    most: AtomicUsize,
    /// Writes and starts of watches.
    turns: Mutex<Vec<Turn>>,
    /// Deleted objects by path, with the time at which they were applied again.
    awaited: Mutex<HashMap<String, Option<Instant>>>,
}

/// Writes and starts of watches of one client, with none of another client in between.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The client's token.
    pub client: String,
    /// Times of the first and the last one.
    pub times: (Instant, Instant),
}

impl Sim {
    /// Starts `number` spokes.
    pub async fn start(number: usize) -> Result<Self> {
        let authority = Authority::new("sim")?;
        let acceptor = authority.acceptor()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let spokes: Arc<Vec<Spoke>> = Arc::new((0..number).map(|_| Spoke::default()).collect());
        let served = Arc::clone(&spokes);
        let accept = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, spokes) = (acceptor.clone(), Arc::clone(&served));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let connection = Arc::new(Connection { spokes, spoke: Mutex::new(None) });
                    let service = service_fn(move |request| serve::answer(Arc::clone(&connection), request));
                    // A connection that ends early ended with its process.
                    let _ = Builder::new(TokioExecutor::new()).serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let hole = silent.local_addr()?;
        let kept = tokio::spawn(async move {
            let mut kept = Vec::new();
            while let Ok((stream, _)) = silent.accept().await {
                kept.push(stream);
            }
        });
        Ok(Self { address, authority: authority.pem(), spokes, accept, hole, silence: kept })
    }

    /// Access to spoke `number` with `provider`, for a ClusterProfile.
    pub fn access(&self, number: usize, provider: &str) -> Value {
        self.at(provider, &format!("https://{}/{number}", self.address))
    }

    /// Access to a server that accepts connections and never answers.
    pub fn black_hole(&self, provider: &str) -> Value {
        self.at(provider, &format!("https://{}", self.hole))
    }

    fn at(&self, provider: &str, server: &str) -> Value {
        json!([{"name": provider, "cluster": {"server": server, "certificate-authority-data": BASE64_STANDARD.encode(&self.authority)}}])
    }

    /// Spoke `number`.
    pub fn spoke(&self, number: usize) -> &Spoke {
        &self.spokes[number]
    }

    /// Requests of all spokes by verb since the last call.
    pub fn take_requests(&self) -> HashMap<&'static str, usize> {
        let mut all = HashMap::new();
        for spoke in self.spokes.iter() {
            for (verb, count) in lock(&spoke.requests).drain() {
                *all.entry(verb).or_default() += count;
            }
        }
        all
    }

    /// The turns of clients on each spoke, in order.
    pub fn turns(&self) -> Vec<Vec<Turn>> {
        self.spokes.iter().map(|spoke| lock(&spoke.turns).clone()).collect()
    }

    /// Maximum number of connections to one spoke, now and at any time.
    pub fn connections(&self) -> (usize, usize) {
        let most = |of: fn(&Spoke) -> &AtomicUsize| {
            self.spokes.iter().map(|s| of(s).load(Ordering::Relaxed)).max().unwrap_or_default()
        };
        (most(|s| &s.open), most(|s| &s.most))
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        self.accept.abort();
        self.silence.abort();
    }
}

impl Spoke {
    /// Deletes the object at `path` (`/apis/apps/v1/namespaces/a/deployments/b`); returns whether
    /// it existed. Then [`Self::back`] returns when it was applied again.
    pub fn delete(&self, path: &str) -> bool {
        lock(&self.awaited).insert(path.to_owned(), None);
        self.store.delete(path)
    }

    /// When the object at `path` was applied again after its deletion.
    pub fn back(&self, path: &str) -> Option<Instant> {
        lock(&self.awaited).get(path).copied().flatten()
    }

    /// Number of objects.
    pub fn objects(&self) -> usize {
        self.store.len()
    }

    fn count(&self, verb: &'static str) {
        *lock(&self.requests).entry(verb).or_default() += 1;
    }

    /// Records a write or the start of a watch.
    fn record(&self, client: &str) {
        let (mut turns, now) = (lock(&self.turns), Instant::now());
        if let Some(turn) = turns.last_mut().filter(|turn| turn.client == client) {
            turn.times.1 = now;
        } else {
            turns.push(Turn { client: client.to_owned(), times: (now, now) });
        }
    }

    fn applied(&self, path: &str) {
        if let Some(when) = lock(&self.awaited).get_mut(path) {
            when.get_or_insert_with(Instant::now);
        }
    }
}

/// A connection; its first request shows which spoke it is for.
struct Connection {
    spokes: Arc<Vec<Spoke>>,
    spoke: Mutex<Option<usize>>,
}

impl Connection {
    fn of(&self, number: usize) -> Option<&Spoke> {
        let spoke = self.spokes.get(number)?;
        if lock(&self.spoke).replace(number).is_none() {
            let open = spoke.open.fetch_add(1, Ordering::Relaxed) + 1;
            spoke.most.fetch_max(open, Ordering::Relaxed);
        }
        Some(spoke)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        if let Some(number) = *lock(&self.spoke) {
            self.spokes[number].open.fetch_sub(1, Ordering::Relaxed);
        }
    }
}
