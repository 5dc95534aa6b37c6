//! Bodies of answers, with limits: a spoke may send anything, without an end.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::Sleep;

/// Longest body of an answer that is no watch, in bytes, and how long it may take.
const LENGTH: u64 = 64 << 20;
const TIME: Duration = Duration::from_secs(60);
/// Longest body of a refusal, in bytes.
const REFUSAL: usize = 64 << 10;
/// Shortest token that is looked for, in bytes: a shorter one may be part of any word, and is none that protects anything.
const SECRET: usize = 8;

/// The body of an answer.
pub enum Bounded {
    /// Of a watch, which goes on for as long as it lasts: who reads it bounds each event.
    Watch(Incoming),
    /// Of anything else.
    Answer {
        /// What comes.
        from: Incoming,
        /// How many bytes may still come.
        left: u64,
        /// When it has to be there.
        until: Pin<Box<Sleep>>,
    },
    /// Of a refusal, read already.
    Refusal(Full<Bytes>),
}

/// Why a body ends early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The connection is lost.
    #[error(transparent)]
    Lost(#[from] hyper::Error),
    /// It is too long.
    #[error("the API server's answer is longer than {LENGTH} bytes")]
    Long,
    /// It takes too long.
    #[error("the API server's answer did not end within {TIME:?}")]
    Slow,
}

impl Bounded {
    /// Bounds `from`.
    pub fn new(from: Incoming, watch: bool) -> Self {
        if watch {
            Self::Watch(from)
        } else {
            Self::Answer { from, left: LENGTH, until: Box::pin(tokio::time::sleep(TIME)) }
        }
    }

    /// Reads a refusal, and takes every mention of `secret` out of it: a hostile server may repeat what it was sent.
    pub async fn refusal(from: Incoming, secret: Option<&str>) -> Self {
        let read = tokio::time::timeout(TIME, Limited::new(from, REFUSAL).collect()).await;
        let bytes = read.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let bytes = match (std::str::from_utf8(&bytes), secret) {
            (Ok(text), Some(secret)) if secret.len() >= SECRET && text.contains(secret) => {
                Bytes::from(text.replace(secret, "[hidden]"))
            }
            (Ok(_), _) => bytes,
            (Err(_), _) => Bytes::new(),
        };
        Self::Refusal(Full::new(bytes))
    }
}

impl Body for Bounded {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Watch(from) => Pin::new(from).poll_frame(cx).map_err(BodyError::from),
            Self::Refusal(whole) => Pin::new(whole).poll_frame(cx).map_err(|never| match never {}),
            Self::Answer { from, left, until } => {
                let Poll::Ready(frame) = Pin::new(from).poll_frame(cx) else {
                    return until.as_mut().poll(cx).map(|()| Some(Err(BodyError::Slow)));
                };
                let length = frame
                    .as_ref()
                    .and_then(|f| f.as_ref().ok())
                    .and_then(Frame::data_ref)
                    .map_or(0, |data| data.len() as u64);
                match left.checked_sub(length) {
                    Some(rest) => *left = rest,
                    None => return Poll::Ready(Some(Err(BodyError::Long))),
                }
                Poll::Ready(frame.map(|f| f.map_err(BodyError::from)))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Watch(from) | Self::Answer { from, .. } => from.size_hint(),
            Self::Refusal(whole) => whole.size_hint(),
        }
    }
}
