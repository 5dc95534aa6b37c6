//! A link to an API server on which connections can fall silent, as if a network dropped their
//! packets: neither side is informed, and nothing is acknowledged. New connections pass.

use std::collections::HashMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use socket2::{SockFilter, SockRef};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::cluster::Cluster;
use crate::{Result, ports};

/// A program of the kernel's packet filter (`BPF_RET | BPF_K`) that keeps 0 bytes of each packet: a
/// socket with it drops what arrives before TCP reads it, keep-alive probes included.
const DROP: SockFilter = SockFilter::new(0x06, 0, 0, 0);
/// Time within which a peer acknowledges what it received. A socket that drops the acknowledgment
/// would send again, and the peer would count that as a sign of life.
const ACKNOWLEDGED: Duration = Duration::from_millis(500);
/// Bytes that are read at once.
const PIECE: usize = 1 << 14;

/// A connection through a link.
struct Connection {
    /// Second handles of its sockets: they stay open when its task ends.
    sockets: [OwnedFd; 2],
    /// When the client last sent something.
    sent: Arc<Mutex<Instant>>,
    task: JoinHandle<()>,
}

impl Connection {
    fn is_unused(&self, time: Duration) -> bool {
        lock(&self.sent).elapsed() >= time
    }
}

/// The connections that pass.
type Open = Arc<Mutex<HashMap<u64, Connection>>>;

/// A TCP proxy for an API server, which is reached with its own certificate. Dropping it closes all
/// connections.
pub struct Link {
    address: SocketAddr,
    open: Open,
    silent: Mutex<Vec<Connection>>,
    accept: JoinHandle<()>,
}

impl Link {
    /// Opens a link to the API server of `cluster`, on an address that is in its certificate.
    pub async fn open(cluster: &Cluster) -> Result<Self> {
        let server = SocketAddr::new(cluster.subnet().address(2).into(), ports::API_SERVER);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let (address, open) = (listener.local_addr()?, Open::default());
        let of = Arc::clone(&open);
        let accept = tokio::spawn(async move {
            for number in 0.. {
                let Ok((client, _)) = listener.accept().await else { return };
                let open = Arc::clone(&of);
                tokio::spawn(async move {
                    // After an error, the client's connection ends.
                    if let Ok(server) = TcpStream::connect(server).await {
                        let _ = pass(number, client, server, &open);
                    }
                });
            }
        });
        Ok(Self { address, open, silent: Mutex::default(), accept })
    }

    /// URL of the API server through it.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// Number of connections that pass, and on which the client has sent nothing for `time`.
    pub fn unused(&self, time: Duration) -> usize {
        lock(&self.open).values().filter(|connection| connection.is_unused(time)).count()
    }

    /// Makes the connections silent on which the client has sent nothing for `time`; with zero, all
    /// that exist. Returns their number.
    pub async fn silence(&self, time: Duration) -> Result<usize> {
        let mut chosen: Vec<Connection> = lock(&self.open)
            .extract_if(|_, connection| connection.is_unused(time))
            .map(|(_, connection)| connection)
            .collect();
        for connection in &mut chosen {
            connection.task.abort();
            // Err means that it was aborted.
            let _ = (&mut connection.task).await;
        }
        tokio::time::sleep(ACKNOWLEDGED).await;
        for socket in chosen.iter().flat_map(|connection| &connection.sockets) {
            SockRef::from(socket).attach_filter(&[DROP])?;
        }
        let number = chosen.len();
        lock(&self.silent).extend(chosen);
        Ok(number)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.accept.abort();
        lock(&self.open).drain().for_each(|(_, connection)| connection.task.abort());
    }
}

/// Copies between `client` and `server` until both have ended.
fn pass(number: u64, client: TcpStream, server: TcpStream, open: &Open) -> io::Result<()> {
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let sockets = [client.as_fd().try_clone_to_owned()?, server.as_fd().try_clone_to_owned()?];
    let (sent, of) = (Arc::new(Mutex::new(Instant::now())), Arc::clone(open));
    let last = Arc::clone(&sent);
    // Locked until the connection is there, since its task removes it.
    let mut all = lock(open);
    let task = tokio::spawn(async move {
        // One that ends early ended with its client or server.
        let _ = copy(client, server, &last).await;
        lock(&of).remove(&number);
    });
    all.insert(number, Connection { sockets, sent, task });
    Ok(())
}

async fn copy(mut client: TcpStream, mut server: TcpStream, sent: &Mutex<Instant>) -> io::Result<()> {
    let ((mut from_client, mut to_client), (mut from_server, mut to_server)) = (client.split(), server.split());
    let there = async {
        let mut piece = vec![0; PIECE];
        loop {
            let length = from_client.read(&mut piece).await?;
            if length == 0 {
                return to_server.shutdown().await;
            }
            *lock(sent) = Instant::now();
            to_server.write_all(&piece[..length]).await?;
        }
    };
    let back = async {
        tokio::io::copy(&mut from_server, &mut to_client).await?;
        to_client.shutdown().await
    };
    tokio::try_join!(there, back).map(drop)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
