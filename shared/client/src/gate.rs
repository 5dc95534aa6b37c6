//! Request bodies that are sent only while a condition holds. A connection asks for a body once it
//! can send it, which may be long after the request was made. If the body fails, the server has an
//! incomplete request, and does nothing.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Method, Request};
use http_body::{Body as HttpBody, Frame, SizeHint};
use kube::client::Body;

/// The condition.
pub type Gate = Arc<dyn Fn() -> bool + Send + Sync>;

/// Why a write is not sent.
#[derive(Debug, thiserror::Error)]
#[error("not sent: this replica may no longer write")]
pub struct Closed;

/// Whether `request` changes nothing.
pub fn is_read<B>(request: &Request<B>) -> bool {
    matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS)
}

/// Fails if `request` is a write, and `gate` doesn't hold.
pub fn check<B>(request: &Request<B>, gate: &Gate) -> Result<(), Closed> {
    if is_read(request) || gate() { Ok(()) } else { Err(Closed) }
}

/// A request body, with its condition.
pub struct GatedBody {
    body: Body,
    gate: Option<Gate>,
}

impl GatedBody {
    /// `body`, which is sent if `gate` holds at that time.
    pub fn new(body: Body, gate: Option<Gate>) -> Self {
        Self { body, gate }
    }
}

impl HttpBody for GatedBody {
    type Data = Bytes;
    type Error = tower::BoxError;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.gate.as_ref().is_some_and(|holds| !holds()) {
            return Poll::Ready(Some(Err(Closed.into())));
        }
        Pin::new(&mut self.body).poll_frame(cx).map_err(Into::into)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};

    use http_body_util::BodyExt;

    use super::*;

    #[tokio::test]
    async fn body_is_sent_only_while_the_gate_is_open() {
        let open = Arc::new(AtomicBool::new(true));
        let state = Arc::clone(&open);
        let gate: Gate = Arc::new(move || state.load(Ordering::Relaxed));
        let body = || GatedBody::new(Body::from(b"{}".to_vec()), Some(Arc::clone(&gate)));
        assert_eq!((body().size_hint().exact(), body().is_end_stream()), (Some(2), false));
        assert_eq!(body().collect().await.unwrap().to_bytes(), "{}");
        // It was made before.
        let late = body();
        open.store(false, Ordering::Relaxed);
        assert!(late.collect().await.unwrap_err().is::<Closed>());
    }
}
