//! A plain HTTP server for tests, which records its requests.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::Result;

/// Type of all responses: Prometheus reads metrics of this one.
const TYPE: &str = "text/plain; version=0.0.4";

/// A server. It ends with the runtime.
pub struct Site {
    /// Its address.
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Site {
    /// Starts a server at `address`. `answer` gets each request, with its body, and returns status
    /// and body of the response. It may block.
    pub async fn open<A>(address: impl Into<IpAddr>, answer: A) -> Result<Self>
    where
        A: Fn(&str) -> (u16, String) + Send + Sync + 'static,
    {
        let address: IpAddr = address.into();
        let listener = TcpListener::bind((address, 0)).await?;
        let (address, requests) = (listener.local_addr()?, Arc::<Mutex<Vec<String>>>::default());
        let (answer, log) = (Arc::new(answer), Arc::clone(&requests));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                // An error means that the client is gone.
                tokio::spawn(async move { serve(stream, answer, &log).await.ok() });
            }
        });
        Ok(Self { address, requests })
    }

    /// Its URL, without a path.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The requests since the last call.
    pub fn take_requests(&self) -> Vec<String> {
        std::mem::take(&mut *self.requests.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

async fn serve<A>(mut stream: TcpStream, answer: Arc<A>, log: &Mutex<Vec<String>>) -> Result<()>
where
    A: Fn(&str) -> (u16, String) + Send + Sync + 'static,
{
    let request = read(&mut stream).await?;
    log.lock().unwrap_or_else(PoisonError::into_inner).push(request.clone());
    let (code, body) = tokio::task::spawn_blocking(move || answer(&request)).await?;
    let length = body.len();
    let head = format!("HTTP/1.1 {code} x\r\nContent-Type: {TYPE}\r\nContent-Length: {length}\r\n");
    stream.write_all(format!("{head}Connection: close\r\n\r\n{body}").as_bytes()).await?;
    Ok(stream.shutdown().await?)
}

/// Reads a request with its body.
async fn read(stream: &mut TcpStream) -> Result<String> {
    let mut bytes = Vec::new();
    loop {
        if stream.read_buf(&mut bytes).await? == 0 {
            return Err("the request ended early".into());
        }
        let text = String::from_utf8_lossy(&bytes);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let headers = head.lines().filter_map(|line| line.split_once(':'));
        let mut lengths = headers.filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
        let length: usize = lengths.next().map_or(Ok(0), |(_, value)| value.trim().parse())?;
        if body.len() >= length {
            return Ok(text.into_owned());
        }
    }
}
