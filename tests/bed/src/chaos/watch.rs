//! Faults of a watch that has begun.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use futures::stream::{BoxStream, unfold};
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use serde_json::json;

use super::{Chaos, Fault};

use crate::gate::Body;

/// Interval at which a quiet watch is checked.
const INTERVAL: Duration = Duration::from_millis(100);

struct State {
    chaos: Arc<Chaos>,
    name: String,
    server: BoxStream<'static, std::io::Result<Bytes>>,
    buffer: Vec<u8>,
    ready: VecDeque<std::io::Result<Bytes>>,
    /// Nothing follows what is ready.
    ended: bool,
    /// Number of checks of the quiet watch.
    checks: u64,
}

/// The body of watch `name`, with the faults of `chaos`.
pub fn body(chaos: Arc<Chaos>, name: String, body: Body) -> Body {
    let server = body.into_data_stream().boxed();
    let state = State { chaos, name, server, buffer: Vec::new(), ready: VecDeque::new(), ended: false, checks: 0 };
    let lines = unfold(state, |mut state| async move {
        let line = state.next().await?;
        Some((line.map(Frame::data), state))
    });
    StreamBody::new(lines).boxed_unsync()
}

impl State {
    async fn next(&mut self) -> Option<std::io::Result<Bytes>> {
        loop {
            if let Some(ready) = self.ready.pop_front() {
                return Some(ready);
            }
            if self.ended {
                return None;
            }
            match tokio::time::timeout(INTERVAL, self.server.next()).await {
                Ok(Some(Ok(bytes))) => {
                    self.buffer.extend_from_slice(&bytes);
                    while let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                        let line: Vec<u8> = self.buffer.drain(..=end).collect();
                        self.line(line).await;
                    }
                }
                Ok(Some(Err(error))) => {
                    self.ended = true;
                    self.ready.push_back(Err(error));
                }
                Ok(None) => self.ended = true,
                Err(_) => self.quiet(),
            }
        }
    }

    /// A fault that ends a quiet watch.
    fn quiet(&mut self) {
        self.checks += 1;
        let name = format!("quiet {}", self.name);
        let ends = |window: &super::Window| matches!(window.fault, Fault::WatchCut | Fault::WatchExpired);
        match self.chaos.hit(&name, ends) {
            Some((Fault::WatchExpired, _)) => self.expire(),
            Some(_) => self.cut(Vec::new()),
            None => {}
        }
    }

    async fn line(&mut self, line: Vec<u8>) {
        if self.ended {
            return;
        }
        match self.chaos.hit(&format!("line {}", self.name), |window| window.fault.is_of_watches()) {
            Some((Fault::WatchCut, _)) => self.cut(line),
            Some((Fault::WatchExpired, _)) => self.expire(),
            Some((Fault::WatchDelay(delay), _)) => {
                tokio::time::sleep(delay).await;
                self.ready.push_back(Ok(line.into()));
            }
            Some((Fault::WatchRepeat, _)) if !is_bookmark(&line) => {
                let line = Bytes::from(line);
                self.ready.extend([Ok(line.clone()), Ok(line)]);
            }
            // A server always sends the one that ends the initial events.
            Some((Fault::WatchNoBookmarks, _)) if is_bookmark(&line) && !contains(&line, "initial-events-end") => {}
            _ => self.ready.push_back(Ok(line.into())),
        }
    }

    fn cut(&mut self, mut line: Vec<u8>) {
        line.truncate(line.len() / 2);
        self.ready.extend([Ok(line.into()), Err(std::io::Error::other("cut"))]);
        self.ended = true;
    }

    fn expire(&mut self) {
        let event = json!({"type": "ERROR", "object": {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": "too old resource version: 1 (2)", "reason": "Expired", "code": 410}});
        self.ready.push_back(Ok(format!("{event}\n").into()));
        self.ended = true;
    }
}

fn is_bookmark(line: &[u8]) -> bool {
    contains(line, "\"type\":\"BOOKMARK\"")
}

fn contains(line: &[u8], text: &str) -> bool {
    line.windows(text.len()).any(|part| part == text.as_bytes())
}
