//! Receives the body of a request, within limits on length, time and memory. What counts is what
//! arrived: a length that is claimed costs nothing.

use std::ops::Deref;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt;
use knative_operator_runtime::tls_server::{Caller, MAX_MEMORY, Memory};

/// Maximum length of a body in bytes: two objects of etcd's limit, escaped, with a margin.
const BODY_LIMIT: usize = 8 << 20;
/// Time limit for receiving a body.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// Memory of a request besides its body, in bytes: headers, buffers, and the task.
const REQUEST_MEMORY: usize = 8 << 10;
/// Memory of a value in a parsed body, in bytes, with its key, and copies of it: an estimate from
/// above for lists and objects of short values.
const VALUE_MEMORY: usize = 128;
/// Up to this claimed length, a body gets its memory at once.
const RESERVED: usize = 64 << 10;

/// A body. Its length, and that of what is parsed from it, count until it is dropped.
#[derive(Debug)]
pub struct Received {
    bytes: Bytes,
    caller: Option<Caller>,
    _memory: Option<Memory>,
}

/// Why a body is refused: status code and message.
pub type Refused = (StatusCode, String);

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

/// Receives the body of `request`.
pub async fn receive(request: Request) -> Result<Received, Refused> {
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
            let parsed = values(&bytes) * VALUE_MEMORY;
            if memory.as_mut().is_some_and(|memory| !memory.add(parsed)) {
                return Err(no_memory());
            }
            Ok(Received { bytes, caller, _memory: memory })
        }
        Ok(Err(refused)) => Err(refused),
        Err(_) => Err((StatusCode::REQUEST_TIMEOUT, format!("the body was not received within {BODY_TIMEOUT:?}"))),
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
        let frame = frame.map_err(|error| (StatusCode::BAD_REQUEST, format!("cannot read the body: {error}")))?;
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

/// The number of values in `body`, or more.
fn values(body: &[u8]) -> usize {
    body.iter().filter(|byte| matches!(byte, b',' | b'[' | b'{')).count()
}

/// The length in the header.
fn length(headers: &HeaderMap) -> Option<usize> {
    headers.get(header::CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn too_large() -> Refused {
    (StatusCode::PAYLOAD_TOO_LARGE, format!("the body is longer than {BODY_LIMIT} bytes"))
}

fn no_memory() -> Refused {
    let message = format!("the requests in progress take {MAX_MEMORY} bytes, and this one is among the largest");
    (StatusCode::TOO_MANY_REQUESTS, message)
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
    fn values_are_counted_from_above() {
        for (body, expected) in [("", 0), ("7", 0), ("[]", 1), ("[0,0,0]", 3), (r#"{"a":{"b":1,"c":"x,y"}}"#, 4)] {
            assert_eq!(values(body.as_bytes()), expected, "{body}");
        }
        // A body of zeros within the limit of its length takes more than all the memory.
        const { assert!(BODY_LIMIT / 2 * VALUE_MEMORY > MAX_MEMORY) };
    }

    #[test]
    fn only_received_bytes_count() {
        let (outcome, taken) = collected(parts(&[b"{"]), BODY_LIMIT, REQUEST_MEMORY + 1);
        assert!(outcome.is_ok(), "{outcome:?}");
        assert_eq!(taken, REQUEST_MEMORY + 1);
        let (outcome, _) = collected(parts(&[b"{", b"}"]), 2, REQUEST_MEMORY + 1);
        assert_eq!(outcome.unwrap_err().0, StatusCode::TOO_MANY_REQUESTS);
        let (outcome, _) = collected(Body::empty(), 0, REQUEST_MEMORY - 1);
        assert_eq!(outcome.unwrap_err().0, StatusCode::TOO_MANY_REQUESTS);
    }

    #[test]
    fn long_and_broken_bodies_are_refused() {
        static MEBIBYTE: [u8; 1 << 20] = [b' '; 1 << 20];
        let whole = [&MEBIBYTE[..]; 8];
        assert_eq!(collected(parts(&whole), 0, usize::MAX).0.map(|bytes| bytes.len()), Ok(BODY_LIMIT));
        let more: Vec<&'static [u8]> = whole.into_iter().chain([&b"{"[..]]).collect();
        assert_eq!(collected(parts(&more), 0, usize::MAX).0.unwrap_err().0, StatusCode::PAYLOAD_TOO_LARGE);
        let claim = axum::http::Request::post("/").header(header::CONTENT_LENGTH, BODY_LIMIT + 1).body(Body::empty());
        let refused = receive(claim.unwrap()).now_or_never().unwrap().unwrap_err();
        assert_eq!(refused.0, StatusCode::PAYLOAD_TOO_LARGE);
        let broken = Body::from_stream(stream::iter([Err::<Bytes, _>(io::Error::other("reset"))]));
        let refused = collected(broken, 0, usize::MAX).0.unwrap_err();
        assert_eq!(refused, (StatusCode::BAD_REQUEST, "cannot read the body: reset".to_owned()));
    }
}
