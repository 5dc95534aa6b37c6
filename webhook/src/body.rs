//! Receives the body of a request, within limits on length, time and memory. What counts is what
//! arrived: a length that is claimed costs nothing.

use std::ops::Deref;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use knative_operator_runtime::tls_server::{Caller, MAX_MEMORY, Memory};
use knative_operator_shared::json::memory_of;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum length of a body in bytes: two objects of etcd's limit, escaped, with a margin.
const BODY_LIMIT: usize = 8 << 20;
/// Time limit for receiving a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Memory of a request besides its body, in bytes: headers, buffers, and the task.
const REQUEST_MEMORY: usize = 8 << 10;
/// Memory of a parsed body, in bytes, from which on it is large. Large ones are parsed one after
/// another, so that the others always have memory.
const LARGE: usize = 2 << 20;
/// Maximum of the memory of a parsed body, in bytes.
const PARSED_LIMIT: usize = MAX_MEMORY / 2;
/// Time that a large body waits for another one.
const LARGE_TIMEOUT: Duration = Duration::from_secs(1);
/// Up to this claimed length, a body gets its memory at once.
const RESERVED: usize = 64 << 10;

/// A body. Its length, and that of what is parsed from it, count until it is dropped.
#[derive(Debug)]
pub struct Received {
    bytes: Bytes,
    caller: Option<Caller>,
    _memory: Option<Memory>,
    _large: Option<OwnedSemaphorePermit>,
}

/// Why a body is refused.
#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    /// Status code.
    pub code: StatusCode,
    /// For people.
    pub message: String,
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        // An API server sends the request again after that time.
        let retry = (self.code == StatusCode::TOO_MANY_REQUESTS).then_some([(header::RETRY_AFTER, "1")]);
        (self.code, retry, self.message).into_response()
    }
}

impl Received {
    /// Whether no peer has more requests in progress than the peer that sent this one.
    pub fn is_from_busiest_peer(&self) -> bool {
        self.caller.as_ref().is_none_or(Caller::has_most_requests)
    }
}

impl Deref for Received {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Receives the body of `request`; `turn` has one permit, for a large one.
pub async fn receive(request: Request, turn: &Arc<Semaphore>) -> Result<Received, Refused> {
    let length = length(request.headers());
    if length.is_some_and(|length| length > BODY_LIMIT) {
        return Err(too_large());
    }
    let caller = request.extensions().get::<Caller>().cloned();
    let mut memory = caller.as_ref().map(Caller::memory);
    let fits = |bytes: usize| memory.as_mut().is_none_or(|memory| memory.add(bytes));
    let body = collect(request.into_body(), length.unwrap_or_default(), fits);
    let outcome = tokio::time::timeout(BODY_TIMEOUT, body).await;
    match outcome {
        Ok(Ok(bytes)) => {
            let parsed = memory_of(&bytes);
            let large = wait_for_turn(parsed, turn).await?;
            if memory.as_mut().is_some_and(|memory| !memory.add(parsed)) {
                return Err(no_memory());
            }
            Ok(Received { bytes, caller, _memory: memory, _large: large })
        }
        Ok(Err(refused)) => Err(refused),
        Err(_) => {
            let message = format!("the body was not received within {BODY_TIMEOUT:?}");
            Err(Refused { code: StatusCode::REQUEST_TIMEOUT, message })
        }
    }
}

/// The bytes of `body`, of which `claimed` are announced. `fits` says of each part whether there is
/// memory for it.
async fn collect(mut body: Body, claimed: usize, mut fits: impl FnMut(usize) -> bool) -> Result<Bytes, Refused> {
    if !fits(REQUEST_MEMORY) {
        return Err(no_memory());
    }
    // Most bodies arrive in one part, which is used as it is. More parts are copied: even the
    // smallest one keeps the buffer into which it was read, of at least 8 KiB.
    let (mut only, mut copied) = (Bytes::new(), Vec::new());
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Refused {
            code: StatusCode::BAD_REQUEST,
            message: format!("cannot read the body: {error}"),
        })?;
        // Trailers are ignored.
        let Ok(part) = frame.into_data() else { continue };
        let length = only.len() + copied.len() + part.len();
        if length > BODY_LIMIT {
            return Err(too_large());
        }
        if !fits(part.len()) {
            return Err(no_memory());
        }
        if only.is_empty() && copied.is_empty() {
            only = part;
            continue;
        }
        if !only.is_empty() {
            copied.reserve(claimed.min(RESERVED).max(length));
            copied.extend_from_slice(&std::mem::take(&mut only));
        }
        copied.extend_from_slice(&part);
    }
    Ok(if copied.is_empty() { only } else { Bytes::from(copied) })
}

/// The turn of a body whose parsed memory is `parsed`; `None` if it is not large.
async fn wait_for_turn(parsed: usize, turn: &Arc<Semaphore>) -> Result<Option<OwnedSemaphorePermit>, Refused> {
    if parsed > PARSED_LIMIT {
        let message = "the body has more values than the webhook reads".to_owned();
        return Err(Refused { code: StatusCode::PAYLOAD_TOO_LARGE, message });
    }
    if parsed <= LARGE {
        return Ok(None);
    }
    let acquired = tokio::time::timeout(LARGE_TIMEOUT, Arc::clone(turn).acquire_owned()).await;
    let permit = acquired.ok().and_then(Result::ok).ok_or_else(|| Refused {
        code: StatusCode::TOO_MANY_REQUESTS,
        message: "other large requests are in progress".to_owned(),
    })?;
    Ok(Some(permit))
}

/// The length in the header.
fn length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large() -> Refused {
    let message = format!("the body is longer than {BODY_LIMIT} bytes");
    Refused { code: StatusCode::PAYLOAD_TOO_LARGE, message }
}

fn no_memory() -> Refused {
    let message = format!("the requests in progress take {MAX_MEMORY} bytes, and this one is among the largest");
    Refused { code: StatusCode::TOO_MANY_REQUESTS, message }
}

#[cfg(test)]
mod tests {
    use std::io;

    use futures::FutureExt;
    use futures::stream;

    use super::*;

    fn parts(parts: &[&'static [u8]]) -> Body {
        let parts: Vec<io::Result<Bytes>> = parts.iter().copied().map(|part| Ok(Bytes::from_static(part))).collect();
        Body::from_stream(stream::iter(parts))
    }

    /// Collects `body`, which has arrived, with a limit on memory; returns what it took of it, too.
    fn collected(body: Body, claimed: usize, limit: usize) -> (Result<Bytes, Refused>, usize) {
        let mut taken = 0;
        let fits = |bytes: usize| {
            taken += bytes;
            taken <= limit
        };
        let outcome = collect(body, claimed, fits).now_or_never().unwrap();
        (outcome, taken)
    }

    #[test]
    fn parts_are_joined_and_a_single_one_is_not_copied() {
        static WHOLE: [u8; 9] = *b"something";
        let (bytes, taken) = collected(parts(&[&WHOLE]), 9, usize::MAX);
        assert_eq!((bytes.unwrap().as_ptr(), taken), (WHOLE.as_ptr(), REQUEST_MEMORY + 9));
        for claimed in [0, 9, RESERVED, BODY_LIMIT] {
            let (bytes, taken) = collected(parts(&[b"some", b"", b"thi", b"ng"]), claimed, usize::MAX);
            assert_eq!((bytes.unwrap().as_ref(), taken), (&WHOLE[..], REQUEST_MEMORY + 9));
        }
        assert_eq!(collected(Body::empty(), 0, usize::MAX), (Ok(Bytes::new()), REQUEST_MEMORY));
    }

    #[test]
    fn bodies_can_be_too_large_to_parse() {
        let (zeros, objects) = (vec![b','; BODY_LIMIT / 2], "{\"a\":0},".repeat(BODY_LIMIT / 8));
        assert!(memory_of(&zeros) > PARSED_LIMIT && memory_of(objects.as_bytes()) > PARSED_LIMIT);
    }

    #[tokio::test]
    async fn large_bodies_are_parsed_one_after_another() {
        let turn = Arc::new(Semaphore::new(1));
        assert!(wait_for_turn(LARGE, &turn).await.unwrap().is_none());
        let first = wait_for_turn(LARGE + 1, &turn).await.unwrap();
        let refused = wait_for_turn(LARGE + 1, &turn).await.unwrap_err();
        assert_eq!(refused.into_response().headers()[header::RETRY_AFTER], "1");
        drop(first);
        assert!(wait_for_turn(LARGE + 1, &turn).await.unwrap().is_some());
        assert_eq!(wait_for_turn(PARSED_LIMIT + 1, &turn).await.unwrap_err().code, StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[test]
    fn only_received_bytes_count() {
        let (outcome, taken) = collected(parts(&[b"{"]), BODY_LIMIT, REQUEST_MEMORY + 1);
        assert!(outcome.is_ok(), "{outcome:?}");
        assert_eq!(taken, REQUEST_MEMORY + 1);
        let (outcome, _) = collected(parts(&[b"{", b"}"]), 2, REQUEST_MEMORY + 1);
        assert_eq!(outcome.unwrap_err().code, StatusCode::TOO_MANY_REQUESTS);
        let (outcome, _) = collected(Body::empty(), 0, REQUEST_MEMORY - 1);
        assert_eq!(outcome.unwrap_err().code, StatusCode::TOO_MANY_REQUESTS);
    }

    #[test]
    fn long_and_broken_bodies_are_refused() {
        static MEBIBYTE: [u8; 1 << 20] = [b' '; 1 << 20];
        let whole = [&MEBIBYTE[..]; 8];
        assert_eq!(collected(parts(&whole), 0, usize::MAX).0.map(|bytes| bytes.len()), Ok(BODY_LIMIT));
        let more: Vec<&'static [u8]> = whole.into_iter().chain([&b"{"[..]]).collect();
        assert_eq!(collected(parts(&more), 0, usize::MAX).0.unwrap_err().code, StatusCode::PAYLOAD_TOO_LARGE);
        let claim = axum::http::Request::post("/").header(header::CONTENT_LENGTH, BODY_LIMIT + 1).body(Body::empty());
        let turn = Arc::new(Semaphore::new(1));
        let refused = receive(claim.unwrap(), &turn).now_or_never().unwrap().unwrap_err();
        assert_eq!(refused.code, StatusCode::PAYLOAD_TOO_LARGE);
        let broken = Body::from_stream(stream::iter([Err::<Bytes, _>(io::Error::other("reset"))]));
        let refused = collected(broken, 0, usize::MAX).0.unwrap_err();
        let message = "cannot read the body: reset".to_owned();
        assert_eq!(refused, Refused { code: StatusCode::BAD_REQUEST, message });
    }
}
