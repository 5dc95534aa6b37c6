//! A time limit of the bodies of responses. The one of their headers doesn't cover them: a proxy
//! that stops in the middle would let a request wait without end.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::{BoxFuture, TryFutureExt};
use http::{Request, Response, Uri};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Sleep;
use tower::{BoxError, Layer, Service};

use crate::body::BodyError;

/// Limits the time in which the body of a response arrives, except for watches: these have no end,
/// and those who read them have a time limit of silence.
#[derive(Clone, Copy, Debug)]
pub struct BodyDeadline(pub Duration);

impl<S> Layer<S> for BodyDeadline {
    type Service = Limiting<S>;

    fn layer(&self, inner: S) -> Limiting<S> {
        Limiting { inner, limit: self.0 }
    }
}

/// A service whose responses have a time limit.
#[derive(Clone, Debug)]
pub struct Limiting<S> {
    inner: S,
    limit: Duration,
}

impl<S, B, R> Service<Request<B>> for Limiting<S>
where
    S: Service<Request<B>, Response = Response<R>>,
    S::Future: Send + 'static,
    S::Error: 'static,
    R: 'static,
{
    type Response = Response<TimedBody<R>>;
    type Error = S::Error;
    type Future = BoxFuture<'static, Result<Self::Response, S::Error>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<B>) -> Self::Future {
        let limit = (!is_watch(request.uri())).then_some(self.limit);
        let timed = move |response: Response<R>| {
            response.map(|body| TimedBody { body, until: limit.map(|limit| Box::pin(tokio::time::sleep(limit))) })
        };
        Box::pin(self.inner.call(request).map_ok(timed))
    }
}

/// Whether a request to `uri` is a watch.
pub fn is_watch(uri: &Uri) -> bool {
    uri.query().is_some_and(|query| query.split('&').any(|part| part == "watch=true" || part == "watch=1"))
}

/// A body that has to end in time.
#[derive(Debug)]
pub struct TimedBody<R> {
    body: R,
    until: Option<Pin<Box<Sleep>>>,
}

impl<R> Body for TimedBody<R>
where
    R: Body + Unpin,
    R::Error: Into<BoxError>,
{
    type Data = R::Data;
    type Error = BoxError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<R::Data>, BoxError>>> {
        let Self { body, until } = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(body).poll_frame(cx) {
            return Poll::Ready(frame.map(|frame| frame.map_err(Into::into)));
        }
        let Some(until) = until else { return Poll::Pending };
        until.as_mut().poll(cx).map(|()| Some(Err(BodyError::TooSlow.into())))
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
    use bytes::Bytes;
    use futures::stream;
    use http_body_util::{BodyExt, StreamBody};
    use tower::ServiceExt;

    use super::*;

    #[tokio::test]
    async fn body_without_end_is_given_up_unless_it_is_that_of_a_watch() {
        let limit = Duration::from_millis(20);
        let endless = tower::service_fn(|_: Request<()>| {
            let frames = stream::pending::<Result<Frame<Bytes>, BoxError>>();
            std::future::ready(Ok::<_, BoxError>(Response::new(StreamBody::new(frames))))
        });
        let service = BodyDeadline(limit).layer(endless);
        let read = async |uri: &str| {
            let response = service.clone().oneshot(Request::get(uri).body(()).unwrap()).await.unwrap();
            response.into_body().collect().await
        };
        let error = read("/api/v1/pods?limit=500").await.unwrap_err();
        assert!(matches!(error.downcast_ref(), Some(BodyError::TooSlow)), "{error}");
        assert!(tokio::time::timeout(limit * 5, read("/api/v1/pods?limit=500&watch=true")).await.is_err());
    }
}
