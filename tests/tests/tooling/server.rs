//! A file server, and what tests need to check files.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Output};
use std::sync::{Arc, Mutex};

/// A file server that interrupts some responses in the middle, once.
pub struct Server {
    pub address: SocketAddr,
    requested: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub fn of(files: HashMap<String, Vec<u8>>, breaks: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requested: Arc<Mutex<Vec<String>>> = Arc::default();
        let (log, breaks) =
            (Arc::clone(&requested), Mutex::new(breaks.iter().map(|b| (*b).to_owned()).collect::<Vec<_>>()));
        // Ends with the test process.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let _ = answer(stream, &files, &log, &breaks);
            }
        });
        Self { address, requested }
    }

    pub fn requested(&self) -> Vec<String> {
        self.requested.lock().unwrap().clone()
    }
}

fn answer(
    mut stream: TcpStream,
    files: &HashMap<String, Vec<u8>>,
    log: &Mutex<Vec<String>>,
    breaks: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let request = lines.next().unwrap_or(Ok(String::new()))?;
    let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
    let mut from = 0;
    for line in lines {
        let line = line?.to_lowercase();
        if let Some(range) = line.strip_prefix("range: bytes=") {
            from = range.trim_end_matches('-').parse().unwrap_or(0);
        }
        if line.is_empty() {
            break;
        }
    }
    log.lock().unwrap().push(format!("{path}@{from}"));
    let Some(body) = files.get(&path) else {
        return stream.write_all(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    };
    if from > body.len() {
        return stream
            .write_all(b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let rest = &body[from..];
    let status = if from > 0 {
        format!("206 Partial Content\r\nContent-Range: bytes {from}-{}/{}", body.len() - 1, body.len())
    } else {
        "200 OK".to_owned()
    };
    stream.write_all(
        format!(
            "HTTP/1.1 {status}\r\nContent-Length: {}\r\nAccept-Ranges: bytes\r\nConnection: close\r\n\r\n",
            rest.len()
        )
        .as_bytes(),
    )?;
    let mut breaks = breaks.lock().unwrap();
    if let Some(place) = breaks.iter().position(|b| *b == path) {
        breaks.remove(place);
        return stream.write_all(&rest[..rest.len() / 2]);
    }
    stream.write_all(rest)
}

pub fn sha256(bytes: &[u8]) -> String {
    let mut child = Command::new("sha256sum")
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(bytes).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()[..64].to_owned()
}

pub fn output_text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}
