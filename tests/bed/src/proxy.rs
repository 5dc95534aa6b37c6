//! Plays kube-proxy: forwards connections to a Service to one of its Pods.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::Result;

/// Forwards connections to one Service port. Dropping it closes the port.
pub struct ServicePort {
    backends: Arc<Mutex<Vec<SocketAddr>>>,
    accept: JoinHandle<()>,
}

/// Time limit until the task of a dropped port has ended: on a busy machine, it ends late.
const RELEASED: Duration = Duration::from_secs(60);

/// Listens on `address` as soon as a former port is released.
async fn listen(address: SocketAddr) -> Result<TcpListener> {
    let started = Instant::now();
    loop {
        match TcpListener::bind(address).await {
            Ok(listener) => return Ok(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse && started.elapsed() < RELEASED => {
                // Polled: nothing reports that a socket is closed.
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
            Err(error) => return Err(format!("{address}: {error}").into()),
        }
    }
}

impl ServicePort {
    /// Listens on the Service's `address`.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        let listener = listen(address).await?;
        let backends = Arc::new(Mutex::new(Vec::<SocketAddr>::new()));
        let of = Arc::clone(&backends);
        let accept = tokio::spawn(async move {
            for turn in 0.. {
                let Ok((mut from, _)) = listener.accept().await else {
                    tokio::time::sleep(Duration::from_millis(5)).await; // without free files, for example
                    continue;
                };
                let mut all = of.lock().unwrap_or_else(PoisonError::into_inner).clone();
                // In turn.
                if !all.is_empty() {
                    let first = turn % all.len();
                    all.rotate_left(first);
                }
                tokio::spawn(async move {
                    for backend in all {
                        match TcpStream::connect(backend).await {
                            Ok(mut to) => {
                                let _ = copy_bidirectional(&mut from, &mut to).await;
                                return;
                            }
                            // It is starting, or ending.
                            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
                            Err(error) => eprintln!("{address} to {backend}: {error}"),
                        }
                    }
                });
            }
        });
        Ok(Self { backends, accept })
    }

    /// Sets the Pods behind it.
    pub fn to(&self, backends: Vec<SocketAddr>) {
        *self.backends.lock().unwrap_or_else(PoisonError::into_inner) = backends;
    }
}

impl Drop for ServicePort {
    fn drop(&mut self) {
        self.accept.abort();
    }
}
