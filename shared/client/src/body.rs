//! Limits on response bodies: a spoke may send anything, without end.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use knative_operator_base::json::Estimate;
use tokio::time::Sleep;

/// Maximum length of a response body in bytes, and maximum memory in bytes of what it is parsed to.
/// Watches have no such limits. A page of five hundred objects with the fields of several managers
/// takes a third of the memory.
pub const MAX_LENGTH: u64 = 64 << 20;
const MAX_MEMORY: usize = 256 << 20;
/// Maximum length of the response to the request that checks a cluster, in bytes: it is sent again
/// and again to clusters that answer with anything. A proxy's page for people is shorter.
pub const MAX_PROBE_LENGTH: u64 = 4 << 20;
/// Maximum duration of a response body, except for watches.
pub const MAX_DURATION: Duration = Duration::from_secs(60);
/// Maximum length of the responses of an API server that arrive at the same time, in bytes: dozens
/// of requests are in progress, and one that is not complete stays for [`MAX_DURATION`].
const MAX_OF_SERVER: usize = 64 << 20;
/// The same of all API servers. Beyond it, each has [`SHARE`] nevertheless.
const MAX_OF_ALL: usize = 256 << 20;
const SHARE: usize = 8 << 20;
/// Maximum length of the incomplete watch events of an API server, in bytes: they may stay for as
/// long as a watch lasts.
const MAX_OF_EVENTS: usize = 16 << 20;
/// Maximum length of an error response in bytes.
const MAX_ERROR_LENGTH: usize = 64 << 10;
/// Minimum length of a token that is redacted, in bytes: a shorter one could be part of any word.
const MIN_SECRET_LENGTH: usize = 8;

/// A response body with limits.
pub enum LimitedBody {
    /// Of a watch, which has no end; the reader limits each event.
    Watch {
        /// The stream.
        from: Incoming,
        /// The event that is not complete.
        event: Counted,
    },
    /// Of any other successful response.
    Response {
        /// The stream.
        from: Incoming,
        /// What has arrived.
        received: Received,
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
    #[error("the response of the API server is longer than {0} bytes")]
    TooLong(u64),
    /// The body has too many objects and values.
    #[error("what the response of the API server contains takes more than {MAX_MEMORY} bytes of memory")]
    TooManyValues,
    /// The bodies that arrive at the same time are too long together.
    #[error("the responses that arrive at the same time are too long together")]
    TooLongTogether,
    /// The body takes too long.
    #[error("the response of the API server did not end within {MAX_DURATION:?}")]
    TooSlow,
}

/// Whether `error` means that a response was too large: a page with fewer objects may not be.
pub fn is_too_large(error: &kube::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if let Some(error) = error.downcast_ref() {
            use BodyError::{TooLong, TooLongTogether, TooManyValues};
            return matches!(error, TooLong(_) | TooLongTogether | TooManyValues);
        }
        cause = error.source();
    }
    false
}

/// Bytes of the responses of one API server that are not complete. Clones share them.
#[derive(Clone, Debug)]
pub struct Arriving {
    own: Arc<AtomicUsize>,
    /// Those of watches.
    events: Arc<AtomicUsize>,
    all: Arc<AtomicUsize>,
}

impl Default for Arriving {
    fn default() -> Self {
        static ALL: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);
        Self { own: Arc::default(), events: Arc::default(), all: Arc::clone(&ALL) }
    }
}

/// Bytes of a response, which count until it is dropped.
pub struct Counted {
    of: Arriving,
    bytes: usize,
    is_event: bool,
}

impl Counted {
    fn new(others: &Arriving) -> Self {
        Self { of: others.clone(), bytes: 0, is_event: false }
    }

    fn of_watch(others: &Arriving) -> Self {
        Self { of: others.clone(), bytes: 0, is_event: true }
    }

    /// Adds `data` of a watch, as far as it is of an event that is not complete; returns the same
    /// as [`Self::add`].
    fn add_event(&mut self, data: &[u8]) -> bool {
        let Some(end) = data.iter().rposition(|byte| *byte == b'\n') else { return self.add(data.len()) };
        *self = Self::of_watch(&self.of);
        self.add(data.len() - end - 1)
    }

    /// Adds `bytes`; returns whether the responses are not too long together.
    fn add(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        let add = |counter: &AtomicUsize| counter.fetch_add(bytes, Ordering::Relaxed) + bytes;
        let (own, all) = (add(&self.of.own), add(&self.of.all));
        let are_events_short = !self.is_event || add(&self.of.events) <= MAX_OF_EVENTS;
        are_events_short && (own <= SHARE || own <= MAX_OF_SERVER && all <= MAX_OF_ALL)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let subtract = |counter: &AtomicUsize| counter.fetch_sub(self.bytes, Ordering::Relaxed);
        if self.is_event {
            subtract(&self.of.events);
        }
        subtract(&self.of.own);
        subtract(&self.of.all);
    }
}

/// What has arrived of a body.
pub struct Received {
    length: u64,
    max_length: u64,
    memory: Estimate,
    counted: Counted,
}

impl Received {
    /// Nothing yet, of a body of at most `max_length` bytes, beside others of the same server.
    fn new(max_length: u64, others: &Arriving) -> Self {
        Self { length: 0, max_length, memory: Estimate::default(), counted: Counted::new(others) }
    }

    fn add(&mut self, data: &[u8]) -> Result<(), BodyError> {
        self.length += data.len() as u64;
        if self.length > self.max_length {
            return Err(BodyError::TooLong(self.max_length));
        }
        if !self.counted.add(data.len()) {
            return Err(BodyError::TooLongTogether);
        }
        if self.memory.add(data) > MAX_MEMORY {
            return Err(BodyError::TooManyValues);
        }
        Ok(())
    }
}

impl LimitedBody {
    /// Limits `from`, which is at most `max_length` bytes long unless it is a watch, and with it
    /// `others` of the same server.
    pub fn new(from: Incoming, watch: bool, max_length: u64, others: &Arriving) -> Self {
        if watch {
            Self::Watch { from, event: Counted::of_watch(others) }
        } else {
            let (received, until) = (Received::new(max_length, others), Box::pin(tokio::time::sleep(MAX_DURATION)));
            Self::Response { from, received, until }
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
            Self::Watch { from, event } => {
                let frame = ready!(Pin::new(from).poll_frame(cx));
                if let Some(Ok(frame)) = &frame
                    && let Some(data) = frame.data_ref()
                    && !event.add_event(data)
                {
                    return Poll::Ready(Some(Err(BodyError::TooLongTogether)));
                }
                Poll::Ready(frame.map(|f| f.map_err(BodyError::from)))
            }
            Self::Error(whole) => Pin::new(whole).poll_frame(cx).map_err(|never| match never {}),
            Self::Response { from, received, until } => {
                let Poll::Ready(frame) = Pin::new(from).poll_frame(cx) else {
                    return until.as_mut().poll(cx).map(|()| Some(Err(BodyError::TooSlow)));
                };
                if let Some(Ok(frame)) = &frame
                    && let Some(data) = frame.data_ref()
                    && let Err(error) = received.add(data)
                {
                    return Poll::Ready(Some(Err(error)));
                }
                Poll::Ready(frame.map(|f| f.map_err(BodyError::from)))
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Watch { from, .. } | Self::Response { from, .. } => from.size_hint(),
            Self::Error(whole) => whole.size_hint(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// That of the only server.
    fn alone() -> Arriving {
        Arriving { all: Arc::default(), ..Arriving::default() }
    }

    fn receive(text: &str) -> Result<(), BodyError> {
        let mut received = Received::new(MAX_LENGTH, &alone());
        text.as_bytes().chunks(16 << 10).try_for_each(|data| received.add(data))
    }

    #[test]
    fn small_response_with_many_objects_is_refused() {
        let bomb = format!(r#"{{"items":[{}{{}}]}}"#, "{},".repeat(1 << 20));
        let error = receive(&bomb).unwrap_err();
        assert!(matches!(error, BodyError::TooManyValues), "{error}");
        assert!(is_too_large(&kube::Error::Service(error.into())));
        assert!(!is_too_large(&kube::Error::Service(BodyError::TooSlow.into())));
    }

    #[test]
    fn probe_has_a_shorter_response_than_other_requests() {
        let piece = vec![b'#'; 1 << 20];
        let mut received = Received::new(MAX_PROBE_LENGTH, &alone());
        assert!((0..4).all(|_| received.add(&piece).is_ok()));
        let error = received.add(&piece[..1]).unwrap_err();
        assert_eq!(error.to_string(), "the response of the API server is longer than 4194304 bytes");
        let mut received = Received::new(MAX_LENGTH, &alone());
        assert!((0..64).all(|_| received.add(&piece).is_ok()));
        assert!(is_too_large(&kube::Error::Service(received.add(&piece[..1]).unwrap_err().into())));
    }

    #[test]
    fn honest_responses_are_received() {
        // Five hundred objects with three managers of sixty fields each, and an annotation.
        let fields = r#""f:app.kubernetes.io/name":{},"#.repeat(60);
        let manager = format!(r#"{{"manager":"m","fieldsV1":{{"f:metadata":{{{fields}".":{{}}}}}}}},"#);
        let object = format!(
            r#"{{"metadata":{{"name":"a","annotations":{{"a":"{}"}},"managedFields":[{}null]}}}},"#,
            "{,[".repeat(10_000),
            manager.repeat(3)
        );
        assert!(receive(&format!(r#"{{"items":[{}null]}}"#, object.repeat(500))).is_ok());
    }

    #[test]
    fn responses_that_arrive_at_the_same_time_have_limits_together() {
        let first = alone();
        let [second, third, fourth, fifth, other] =
            [(); 5].map(|()| Arriving { all: Arc::clone(&first.all), ..alone() });
        // Responses of 60 MiB that don't end, and how much of each is received.
        let receive = |of: &Arriving, number: usize| -> (Vec<Counted>, Vec<usize>) {
            let all = (0..number).map(|_| {
                let mut counted = Counted::new(of);
                let pieces = (0..60).take_while(|_| counted.add(1 << 20)).count();
                (counted, pieces)
            });
            all.unzip()
        };
        let (of_first, pieces) = receive(&first, 4);
        assert_eq!(pieces, [60, 4, 0, 0]);
        let refused = Received::new(MAX_LENGTH, &first).add(b"{}").unwrap_err();
        assert!(is_too_large(&kube::Error::Service(refused.into())));
        let all_of = [&second, &third, &fourth, &fifth].map(|server| receive(server, 1));
        assert_eq!(all_of.each_ref().map(|(_, pieces)| pieces[0]), [60, 60, 60, 9]);
        // Another server is not kept from short responses.
        let (of_other, pieces) = receive(&other, 1);
        assert_eq!(pieces, [8]);
        drop((of_first, all_of, of_other));
        assert_eq!(receive(&other, 1).1, [60]);
        assert_eq!([first.own, first.all].map(|bytes| bytes.load(Ordering::Relaxed)), [0, 0]);
    }

    #[test]
    fn event_of_a_watch_counts_until_it_is_complete() {
        let server = alone();
        let mut event = Counted::of_watch(&server);
        for (data, expected) in [("{\"a\":", 5), ("1}\n{}\n{", 1), ("\n", 0), ("{", 1)] {
            assert!(event.add_event(data.as_bytes()));
            assert_eq!(server.own.load(Ordering::Relaxed), expected, "{data}");
        }
        let mut others = Counted::new(&server);
        others.add(MAX_OF_SERVER);
        assert!(!event.add_event(b"}"));
        drop((event, others));
        assert_eq!([&server.own, &server.events].map(|bytes| bytes.load(Ordering::Relaxed)), [0, 0]);
    }

    #[test]
    fn incomplete_events_keep_no_responses_from_arriving() {
        let server = alone();
        let mut events: Vec<_> = (0..3).map(|_| Counted::of_watch(&server)).collect();
        let part = vec![b'a'; 1 << 20];
        let received = |event: &mut Counted| (0..8).take_while(|_| event.add_event(&part)).count();
        assert_eq!(events.iter_mut().map(received).sum::<usize>(), 16);
        assert!(Counted::new(&server).add(32 << 20));
        drop(events);
        assert_eq!([&server.own, &server.events].map(|bytes| bytes.load(Ordering::Relaxed)), [0, 0]);
    }
}
