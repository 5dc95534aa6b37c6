//! Limits on response bodies: a spoke may send anything, without end.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::Sleep;

/// Maximum length of a response body in bytes, and maximum duration. Watches have no such limits.
const MAX_LENGTH: u64 = 64 << 20;
const MAX_DURATION: Duration = Duration::from_secs(60);
/// Maximum length of an error response in bytes.
const MAX_ERROR_LENGTH: usize = 64 << 10;
/// Minimum length of a token that is redacted, in bytes: a shorter one could be part of any word.
const MIN_SECRET_LENGTH: usize = 8;

/// A response body with limits.
pub enum LimitedBody {
    /// Of a watch, which has no end; the reader limits each event.
    Watch(Incoming),
    /// Of any other successful response.
    Response {
        /// The stream.
        from: Incoming,
        /// Bytes that may still arrive.
        left: u64,
        /// Deadline.
        until: Pin<Box<Sleep>>,
    },
    /// Of an error response, already read.
    Error(Full<Bytes>),
}

/// Why a body ends early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The connection failed.
    #[error(transparent)]
    Connection(#[from] hyper::Error),
    /// The body is too long.
    #[error("the response of the API server is longer than {MAX_LENGTH} bytes")]
    TooLong,
    /// The body takes too long.
    #[error("the response of the API server did not end within {MAX_DURATION:?}")]
    TooSlow,
}

impl LimitedBody {
    /// Limits `from`.
    pub fn new(from: Incoming, watch: bool) -> Self {
        if watch {
            Self::Watch(from)
        } else {
            Self::Response { from, left: MAX_LENGTH, until: Box::pin(tokio::time::sleep(MAX_DURATION)) }
        }
    }

    /// Reads an error response and redacts `secret`: a hostile server may repeat what the operator
    /// sent.
    pub async fn error(from: Incoming, secret: Option<&str>) -> Self {
        let read = tokio::time::timeout(MAX_DURATION, Limited::new(from, MAX_ERROR_LENGTH).collect()).await;
        let bytes = read.ok().and_then(Result::ok).map(http_body_util::Collected::to_bytes).unwrap_or_default();
        let bytes = match (std::str::from_utf8(&bytes), secret) {
            (Ok(text), Some(secret)) if secret.len() >= MIN_SECRET_LENGTH && text.contains(secret) => {
                Bytes::from(text.replace(secret, "[hidden]"))
            }
            (Ok(_), _) => bytes,
            (Err(_), _) => Bytes::new(),
        };
        Self::Error(Full::new(bytes))
    }
}

impl Body for LimitedBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.get_mut() {
            Self::Watch(from) => Pin::new(from).poll_frame(cx).map_err(BodyError::from),
            Self::Error(whole) => Pin::new(whole).poll_frame(cx).map_err(|never| match never {}),
            Self::Response { from, left, until } => {
                let Poll::Ready(frame) = Pin::new(from).poll_frame(cx) else {
                    return until.as_mut().poll(cx).map(|()| Some(Err(BodyError::TooSlow)));
                };
                let length = frame
                    .as_ref()
                    .and_then(|f| f.as_ref().ok())
                    .and_then(Frame::data_ref)
                    .map_or(0, |data| data.len() as u64);
                match left.checked_sub(length) {
                    Some(rest) => *left = rest,
                    None => return Poll::Ready(Some(Err(BodyError::TooLong))),
                }
                Poll::Ready(frame.map(|f| f.map_err(BodyError::from)))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Watch(from) | Self::Response { from, .. } => from.size_hint(),
            Self::Error(whole) => whole.size_hint(),
        }
    }
}
