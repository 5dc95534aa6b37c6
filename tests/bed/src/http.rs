//! Plain HTTP for the endpoints of the processes.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::Result;

/// GETs `path`; returns status code and body.
pub async fn get(address: SocketAddr, path: &str) -> Result<(u16, String)> {
    get_from(address, &address.to_string(), path).await
}

/// GETs `path` of `host` at `address`; returns status code and body.
pub async fn get_from(address: SocketAddr, host: &str, path: &str) -> Result<(u16, String)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no HTTP answer")?;
    let code = head.split(' ').nth(1).and_then(|c| c.parse().ok()).ok_or("no status code")?;
    Ok((code, body.to_owned()))
}

/// Polls `/readyz` until it returns 200.
pub async fn ready(address: SocketAddr, limit: Duration) -> Result<()> {
    let deadline = Instant::now() + limit;
    let mut last = String::new();
    while Instant::now() < deadline {
        match get(address, "/readyz").await {
            Ok((200, _)) => return Ok(()),
            Ok((code, body)) => last = format!("{code} {body}"),
            Err(error) => last = error.to_string(),
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Err(format!("{address} is not ready after {limit:?}: {last}").into())
}
