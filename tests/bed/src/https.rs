//! A small HTTPS server for tests, which can misbehave.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::Result;
use crate::pki::{Authority, Issued};

/// Number of pieces in a body that has no end for its client: a GiB.
const PIECES: usize = 1 << 14;
/// Time limit of a client.
const LIMIT: Duration = Duration::from_secs(300);

/// A received request.
#[derive(Clone, Debug, Default)]
pub struct ReceivedRequest {
    /// The path, with its query.
    pub path: String,
    /// The header lines, in lower case.
    pub headers: Vec<String>,
}

/// A response.
pub enum Answer {
    /// This status, with these headers and this body.
    With(&'static str, Vec<String>, Vec<u8>),
    /// A body that ends in the middle.
    Cut(Vec<u8>),
    /// A body without an end.
    Endless,
    /// No response.
    Silence,
}

impl Answer {
    /// This `status`, with a JSON document.
    pub fn json(status: &'static str, body: &Value) -> Self {
        Self::With(status, vec!["Content-Type: application/json".to_owned()], body.to_string().into_bytes())
    }

    /// What an API server says about an object or a kind that it lacks.
    pub fn not_found() -> Self {
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no", "reason": "NotFound", "code": 404});
        Self::json("404 Not Found", &status)
    }
}

/// A server on the loopback network. It stops with the process.
pub struct Server {
    /// Its address.
    pub address: SocketAddr,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
}

impl Server {
    /// Starts a server with a certificate of `authority`. `answer` gets each request, and the
    /// number of earlier ones for the same path.
    pub fn start(
        authority: &Authority,
        answer: impl Fn(&ReceivedRequest, usize) -> Answer + Send + Sync + 'static,
    ) -> Result<Self> {
        Self::start_with(&authority.issue("server", None, &[Ipv4Addr::LOCALHOST.into()], &["localhost"])?, answer)
    }

    /// Starts a server with the certificate `issued`.
    pub fn start_with(
        issued: &Issued,
        answer: impl Fn(&ReceivedRequest, usize) -> Answer + Send + Sync + 'static,
    ) -> Result<Self> {
        let chain =
            CertificateDer::pem_slice_iter(issued.certificate.as_bytes()).collect::<std::result::Result<_, _>>()?;
        let key = PrivateKeyDer::from_pem_slice(issued.key.as_bytes())?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let config = Arc::new(config.with_no_client_auth().with_single_cert(chain, key)?);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let requests: Arc<Mutex<Vec<ReceivedRequest>>> = Arc::default();
        let (log, answer) = (Arc::clone(&requests), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (config, log, answer) = (Arc::clone(&config), Arc::clone(&log), Arc::clone(&answer));
                std::thread::spawn(move || serve(stream, config, &log, answer.as_ref()));
            }
        });
        Ok(Self { address, requests })
    }

    /// The URL of `path`.
    pub fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// The requests so far.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

fn serve(
    stream: TcpStream,
    config: Arc<ServerConfig>,
    log: &Mutex<Vec<ReceivedRequest>>,
    answer: &dyn Fn(&ReceivedRequest, usize) -> Answer,
) -> Option<()> {
    stream.set_read_timeout(Some(LIMIT)).ok()?;
    stream.set_write_timeout(Some(LIMIT)).ok()?;
    let mut stream = StreamOwned::new(ServerConnection::new(config).ok()?, stream);
    let requests = read(&mut stream)?;
    let before = {
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push(requests.clone());
        log.iter().filter(|a| a.path == requests.path).count() - 1
    };
    match answer(&requests, before) {
        Answer::With(status, headers, body) => {
            let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
            let head =
                format!("HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n", body.len());
            stream.write_all(head.as_bytes()).ok()?;
            stream.write_all(&body).ok()?;
            stream.conn.send_close_notify();
            stream.flush().ok()
        }
        Answer::Cut(body) => {
            stream
                .write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len() * 2).as_bytes())
                .ok()?;
            stream.write_all(&body).ok()?;
            stream.flush().ok()
        }
        Answer::Endless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n").ok()?;
            let piece = vec![b'#'; 1 << 16];
            (0..PIECES).all(|_| stream.write_all(&piece).is_ok()).then_some(())
        }
        // Until the client closes the connection.
        Answer::Silence => stream.read(&mut [0]).ok().map(drop),
    }
}

fn read(stream: &mut impl Read) -> Option<ReceivedRequest> {
    let mut reader = BufReader::new(stream);
    let mut lines = reader.by_ref().lines();
    let path = lines.next()?.ok()?.split(' ').nth(1)?.to_owned();
    let headers: Vec<String> = lines
        .map_while(std::result::Result::ok)
        .take_while(|line| !line.is_empty())
        .map(|line| line.to_lowercase())
        .collect();
    // With an unread body, the system resets the connection, and the client loses the response.
    let length = headers.iter().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    std::io::copy(&mut reader.take(length.unwrap_or(0)), &mut std::io::sink()).ok()?;
    Some(ReceivedRequest { path, headers })
}
