//! A Pod floods the webhook: bodies and headers that don't end, bodies of millions of values, idle
//! connections, connections that are opened and dropped, and large headers on the port for metrics.
//! Reviews are answered meanwhile.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper_rustls::HttpsConnector;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioExecutor;
use knative_operator_shared::api::Component;
use knative_operator_tests::cluster::Cluster;
use knative_operator_tests::product::{self, Product};
use knative_operator_tests::{Result, http, measure, releases, tls};
use rustls::pki_types::ServerName;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::load::Load;
use crate::support::{namespace, resource, run};

/// Reviews in a second, and in total.
const REVIEWS: (u32, usize) = (200, 1000);
/// Time within which the webhook answers 99 of 100 reviews, in seconds, by its own clock: at least
/// this, and on a slow machine this many times the time that 99 of 100 take without a flood.
const FAST: (f64, f64) = (0.02, 4.0);
/// Attempts to see that: other tests use the machine at the same time.
const ROUNDS: usize = 5;
/// Time limit of a review, as in the chart.
const LIMIT: Duration = Duration::from_secs(10);
/// Bodies of 8 MiB that arrive byte by byte.
const BODIES: usize = 8;
/// Bodies of 8 MiB with zeros, each a value, that arrive at once.
const ZEROS: usize = 7;
/// Connections with large headers to the port for metrics.
const LARGE: usize = 400;
/// Bytes of large headers.
const LARGE_HEADERS: usize = 400 << 10;
/// Memory that the webhook may use, in KiB: the chart's limit is 500 MiB.
const MEMORY: u64 = 250 << 10;
/// Headers that arrive byte by byte.
const HEADERS: usize = 50;
/// Connections in HTTP/2 without a request.
const IDLE: usize = 300;
/// Interval of connections that are opened and dropped.
const DROPS: Duration = Duration::from_millis(5);
/// Interval of the bytes.
const BYTES: Duration = Duration::from_millis(100);
/// The start of a connection in HTTP/2: the preface and an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";

/// A Pod with an address of its own.
#[derive(Clone)]
struct Attacker {
    address: Ipv4Addr,
    webhook: SocketAddr,
    metrics: SocketAddr,
    /// Number of connections so far.
    connections: Arc<AtomicUsize>,
}

impl Attacker {
    async fn connect(&self) -> Result<TcpStream> {
        self.connect_to(self.webhook).await
    }

    async fn connect_to(&self, server: SocketAddr) -> Result<TcpStream> {
        let socket = TcpSocket::new_v4()?;
        socket.bind(SocketAddr::from((self.address, 0)))?;
        Ok(socket.connect(server).await?)
    }

    /// Sends large headers to the port for metrics, without an end.
    async fn fill_headers(self) {
        let headers = [&b"GET /metrics HTTP/1.1\r\nX-Large: "[..], &vec![b'a'; LARGE_HEADERS]].concat();
        loop {
            if let Ok(mut stream) = self.connect_to(self.metrics).await {
                let _ = stream.write_all(&headers).await;
                // Until the server closes the connection.
                let _ = stream.read_to_end(&mut Vec::new()).await;
            }
            tokio::time::sleep(BYTES).await;
        }
    }

    /// A connection with `start` sent.
    async fn open(&self, protocol: &[u8], start: &[u8]) -> Result<TlsStream<TcpStream>> {
        let mut config = tls::insecure_config();
        config.alpn_protocols = vec![protocol.to_vec()];
        let connector = TlsConnector::from(Arc::new(config));
        let mut stream = connector.connect(ServerName::try_from("webhook")?, self.connect().await?).await?;
        stream.write_all(start).await?;
        stream.flush().await?;
        self.connections.fetch_add(1, Ordering::Relaxed);
        Ok(stream)
    }

    /// Sends `start`, and then `piece` again and again, until the webhook answers or closes the
    /// connection. Without an end.
    async fn trickle(self, protocol: &'static [u8], start: Vec<u8>, piece: &'static [u8]) {
        loop {
            if let Ok(mut stream) = self.open(protocol, &start).await {
                let mut answer = [0; 1024];
                loop {
                    tokio::select! {
                        read = stream.read(&mut answer) => {
                            // In HTTP/2, a server begins with settings.
                            if !piece.is_empty() || read.unwrap_or_default() == 0 {
                                break;
                            }
                        }
                        () = tokio::time::sleep(BYTES) => {
                            if stream.write_all(piece).await.is_err() || stream.flush().await.is_err() {
                                break;
                            }
                        }
                    }
                }
            }
            tokio::time::sleep(BYTES).await;
        }
    }

    /// Opens and drops connections, without an end.
    async fn drop_connections(self) {
        let mut turns = tokio::time::interval(DROPS);
        loop {
            turns.tick().await;
            drop(self.connect().await);
        }
    }

    /// Starts the attack, which ends with the returned tasks.
    fn start(&self) -> JoinSet<()> {
        // Not to the path of the reviews, whose times the webhook counts apart.
        let head = "POST /mutate HTTP/1.1\r\nHost: webhook\r\n";
        let body = format!("{head}Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{{", 8 << 20);
        let mut tasks = JoinSet::new();
        for _ in 0..BODIES {
            tasks.spawn(self.clone().trickle(b"http/1.1", body.clone().into_bytes(), b" "));
        }
        let zeros = "0,".repeat((8 << 20) / 2 - 1);
        let zeros = format!("{head}Content-Length: {}\r\n\r\n[{zeros}0]", zeros.len() + 3).into_bytes();
        for _ in 0..ZEROS {
            tasks.spawn(self.clone().trickle(b"http/1.1", zeros.clone(), b""));
        }
        for _ in 0..LARGE {
            tasks.spawn(self.clone().fill_headers());
        }
        for _ in 0..HEADERS {
            tasks.spawn(self.clone().trickle(b"http/1.1", format!("{head}X-Slow: ").into_bytes(), b"a"));
        }
        for _ in 0..IDLE {
            tasks.spawn(self.clone().trickle(b"h2", PREFACE.to_vec(), b""));
        }
        tasks.spawn(self.clone().drop_connections());
        tasks
    }
}

type HttpsClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// Sends a review; returns how long it took. Fails unless it is admitted.
async fn send(client: HttpsClient, url: hyper::Uri, body: Bytes) -> Result<Duration> {
    let started = Instant::now();
    let request = hyper::Request::post(url).header("content-type", "application/json").body(Full::new(body))?;
    let answer = client.request(request).await?.into_body().collect().await?.to_bytes();
    if answer.windows(14).any(|part| part == b"\"allowed\":true") {
        Ok(started.elapsed())
    } else {
        Err(String::from_utf8_lossy(&answer).into_owned().into())
    }
}

/// Sends [`REVIEWS`] to `url` at a constant rate, each of which must succeed in time; returns the
/// median and the 99th percentile of their times.
async fn reviews(url: &hyper::Uri) -> Result<(Duration, Duration)> {
    let client: HttpsClient = Client::builder(TokioExecutor::new()).build(tls::insecure_connector());
    let object =
        resource(Component::Serving, "flood", "knative-serving", None, json!({"high-availability": {"replicas": 2}}));
    let review = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "1", "operation": "CREATE", "name": "knative-serving", "namespace": "flood",
        "kind": {"group": "operator.knative.dev", "version": "v1beta1", "kind": "KnativeServing"},
        "resource": {"group": "operator.knative.dev", "version": "v1beta1", "resource": "knativeservings"},
        "userInfo": {"username": "admin", "groups": ["system:masters"]}, "object": object,
    }});
    let body = Bytes::from(review.to_string());
    let (mut turns, mut tasks) = (tokio::time::interval(Duration::from_secs(1) / REVIEWS.0), JoinSet::new());
    for _ in 0..REVIEWS.1 {
        turns.tick().await;
        tasks.spawn(tokio::time::timeout(LIMIT, send(client.clone(), url.clone(), body.clone())));
    }
    let mut times = Vec::new();
    while let Some(outcome) = tasks.join_next().await {
        times.push(outcome??.map_err(|error| format!("a review failed after {} others: {error}", times.len()))?);
    }
    times.sort_unstable();
    Ok((times[times.len() / 2], times[times.len() * 99 / 100]))
}

/// Share of reviews that were not fast between `before` and `after`.
fn slow((fast, all): (f64, f64), before: (f64, f64)) -> f64 {
    1.0 - (fast - before.0) / (all - before.1)
}

/// How many reviews the webhook answered within `limit` seconds, and how many in all, by the
/// histogram at `metrics`. Its bounds are powers of two, so the last one below counts.
async fn answered(metrics: SocketAddr, limit: f64) -> Result<(f64, f64)> {
    let deadline = Instant::now() + LIMIT;
    let text = loop {
        match http::get(metrics, "/metrics").await {
            Ok((200, text)) => break text,
            // The flood fills that port, too.
            outcome if Instant::now() > deadline => return Err(format!("no metrics: {outcome:?}").into()),
            _ => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    };
    let (mut fast, mut all) = (None, None);
    for line in text.lines() {
        if !line.starts_with("admission_request_duration_seconds_bucket") || !line.contains("\"validate\"") {
            continue;
        }
        let bound = line.split("le=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default();
        let count = line.rsplit(' ').next().and_then(|count| count.parse::<f64>().ok());
        // "+Inf" is a number for Rust, too.
        if bound.parse::<f64>().is_ok_and(|bound| bound <= limit) {
            fast = count;
        }
        all = count;
    }
    fast.zip(all).ok_or_else(|| format!("no histogram: {text}").into())
}

#[test]
fn reviews_are_answered_while_a_pod_floods_the_webhook() {
    run(async {
        let (hub, plugins) = (Cluster::hub("flood").await?, tempfile::tempdir()?);
        let product = Product::create(&hub, &releases::small(), product::values(&[]), plugins.path()).await?;
        namespace(&hub, "flood").await?;
        let (pod, _) = product.webhook.as_ref().ok_or("no webhook")?;
        let (url, id) = (format!("https://{}:8443/validate", pod.address).parse()?, pod.process.pid()?);
        let (before, quiet) = (measure::resident(id)?, reviews(&url).await?);
        let fast = FAST.0.max(FAST.1 * quiet.1.as_secs_f64());

        let attacker = Attacker {
            address: hub.subnet().address(33),
            webhook: SocketAddr::from((pod.address, 8443)),
            metrics: SocketAddr::from((pod.address, 9090)),
            connections: Arc::default(),
        };
        let attack = attacker.start();
        let deadline = Instant::now() + knative_operator_tests::wait::LIMIT;
        // Polled: the webhook reports no connections.
        while attacker.connections.load(Ordering::Relaxed) < BODIES + HEADERS + IDLE {
            assert!(Instant::now() < deadline, "the attack has not started");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        // Through the API server, too.
        let load = Load::start(&hub.client(), "flood", 10);
        let mut rounds = Vec::new();
        let mut flooded;
        loop {
            let before = answered(attacker.metrics, fast).await?;
            flooded = reviews(&url).await?;
            rounds.push(slow(answered(attacker.metrics, fast).await?, before));
            if rounds.last().is_some_and(|slow| *slow <= 0.01) || rounds.len() == ROUNDS {
                break;
            }
        }
        let admissions = load.end().await?;
        drop(attack);
        let after = measure::resident(id)?;
        eprintln!(
            "{} reviews a second: p50 {:.1?}, p99 {:.1?}; while a Pod floods the webhook with {} connections: p50 {:.1?}, p99 {:.1?}, and {admissions} admissions; resident memory {before} KiB, then {after} KiB",
            REVIEWS.0,
            quiet.0,
            quiet.1,
            attacker.connections.load(Ordering::Relaxed),
            flooded.0,
            flooded.1,
        );
        eprintln!("share of reviews that took the webhook longer than {fast:.3} s, in each round: {rounds:.4?}");
        assert!(rounds.iter().any(|slow| *slow <= 0.01), "p99 is more than {fast:.3} s in each round");
        assert!(flooded.1 < LIMIT / 2, "p99 is {:?}", flooded.1);
        assert!(after < MEMORY, "{after} KiB");
        Ok(())
    });
}
