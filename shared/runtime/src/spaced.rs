//! An answer that takes long to make, to clients that may ask all the time.

use std::time::{Duration, Instant};

use axum::body::Bytes;
use tokio::sync::Mutex;

/// Rest after an answer was made, in multiples of the time that it took: at most a tenth of the
/// time goes into answers.
const REST: u32 = 9;
/// Longest rest: a process that stood still takes as long, and its answer must not stay for nine
/// times that.
const MAX_REST: Duration = Duration::from_secs(10);

/// What makes an answer, and the last one.
pub struct Spaced {
    make: Box<dyn Fn() -> Vec<u8> + Send + Sync>,
    last: Mutex<Option<Made>>,
}

struct Made {
    answer: Bytes,
    /// Until when it is given to all who ask.
    until: Instant,
}

impl Spaced {
    /// Answers what `make` makes.
    pub fn new(make: impl Fn() -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self { make: Box::new(make), last: Mutex::default() }
    }

    /// The answer. It may be as old as nine times the time that it took to make, but not more than
    /// ten seconds.
    pub async fn get(&self) -> Bytes {
        self.get_by(Instant::now).await
    }

    async fn get_by(&self, now: impl Fn() -> Instant) -> Bytes {
        let mut last = self.last.lock().await;
        let started = now();
        if let Some(made) = last.as_ref().filter(|made| started < made.until) {
            return made.answer.clone();
        }
        let answer = Bytes::from((self.make)());
        let ended = now();
        let rest = ended.saturating_duration_since(started).saturating_mul(REST).min(MAX_REST);
        *last = Some(Made { answer: answer.clone(), until: ended + rest });
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[tokio::test]
    async fn answer_is_made_for_a_tenth_of_the_time_at_most() {
        let (start, elapsed, made) = (Instant::now(), Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let (clock, count) = (Arc::clone(&elapsed), Arc::clone(&made));
        // It takes 30 ms.
        let spaced = Spaced::new(move || {
            clock.fetch_add(30, Ordering::Relaxed);
            count.fetch_add(1, Ordering::Relaxed).to_string().into_bytes()
        });
        let mut answers = Vec::new();
        while elapsed.load(Ordering::Relaxed) < 3000 {
            let now = || start + Duration::from_millis(elapsed.load(Ordering::Relaxed).into());
            answers.push(spaced.get_by(now).await);
            elapsed.fetch_add(1, Ordering::Relaxed);
        }
        assert_eq!(made.load(Ordering::Relaxed), 10, "of {} answers", answers.len());
        assert_eq!([&answers[0][..], &answers[1][..], &answers.last().unwrap()[..]], [b"0", b"0", b"9"]);
    }

    #[tokio::test]
    async fn answer_of_a_process_that_stood_still_does_not_stay() {
        let (start, elapsed) = (Instant::now(), Arc::new(AtomicU32::new(0)));
        let clock = Arc::clone(&elapsed);
        let now = || start + Duration::from_secs(elapsed.load(Ordering::Relaxed).into());
        // It takes a minute.
        let spaced = Spaced::new(move || clock.fetch_add(60, Ordering::Relaxed).to_string().into_bytes());
        assert_eq!([&spaced.get_by(now).await[..], &spaced.get_by(now).await[..]], [b"0", b"0"]);
        elapsed.fetch_add(10, Ordering::Relaxed);
        assert_eq!(&spaced.get_by(now).await[..], b"70");
    }
}
