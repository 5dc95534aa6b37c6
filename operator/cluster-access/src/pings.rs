//! When the connections to spokes are checked with HTTP/2 pings. A process that wakes up for each
//! ping of thousands of connections is never at rest, so pings, and the time limits of their
//! responses, are due in common turns.

use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use hyper_util::rt::TokioTimer;

/// Interval of the turns. Deadlines are put off to the next one, so what is configured is less than
/// what is promised by that.
const TURN: Duration = Duration::from_millis(500);
/// Interval of pings of a connection: 5 s with the turns, and more, up to [`MAX_INTERVAL`], of very
/// many spokes.
pub const INTERVAL: Duration = Duration::from_millis(4_500);
/// Maximum interval of pings of a connection: 30 s with the turns.
const MAX_INTERVAL: Duration = Duration::from_millis(29_500);
/// Interval of the pings of all spokes together.
const ALL: Duration = Duration::from_millis(6);
/// Time limit of the response: up to 3 s with the turns. Deadlines that are further away are those
/// of pings.
pub const TIMEOUT: Duration = Duration::from_millis(2_500);
/// The first turn. Nothing sets this clock.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// How much longer than [`INTERVAL`] that of each connection is, with this many `spokes`.
fn longer(spokes: usize) -> Duration {
    let all = ALL.saturating_mul(u32::try_from(spokes).unwrap_or(u32::MAX));
    all.saturating_sub(TURN).min(MAX_INTERVAL).saturating_sub(INTERVAL)
}

/// A timer whose deadlines are turns.
#[derive(Clone, Debug, Default)]
pub struct Turns {
    timer: TokioTimer,
    /// The number of spokes now.
    spokes: Arc<AtomicUsize>,
}

impl Turns {
    /// A timer for the connections to one of this many `spokes`.
    pub fn new(spokes: Arc<AtomicUsize>) -> Self {
        Self { timer: TokioTimer::new(), spokes }
    }

    /// The turn for what `hyper` wants to do at `deadline`.
    fn turn(&self, deadline: Instant) -> Instant {
        let is_ping = deadline.saturating_duration_since(self.now()) > TIMEOUT;
        let longer = if is_ping { longer(self.spokes.load(Ordering::Relaxed)) } else { Duration::ZERO };
        turn_at(*START, deadline + longer)
    }
}

impl Timer for Turns {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.timer.sleep_until(self.turn(deadline))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, deadline: Instant) {
        self.timer.reset(sleep, self.turn(deadline));
    }

    fn now(&self) -> Instant {
        self.timer.now()
    }
}

/// The first turn that is not before `deadline`, counted from `start`.
fn turn_at(start: Instant, deadline: Instant) -> Instant {
    let turn = TURN.as_nanos();
    let turns = deadline.saturating_duration_since(start).as_nanos().div_ceil(turn);
    start + TURN * u32::try_from(turns).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pings_of_very_many_spokes_are_rarer() {
        let spokes = Arc::new(AtomicUsize::new(0));
        let timer = Turns::new(Arc::clone(&spokes));
        // As soon as there are so many, not for new connections only.
        for (count, seconds) in [(1, 5), (800, 5), (1_000, 6), (5_000, 30), (usize::MAX, 30), (10, 5)] {
            spokes.store(count, Ordering::Relaxed);
            let now = timer.now();
            let seconds = Duration::from_secs(seconds);
            let (ping, response) = (timer.turn(now + INTERVAL) - now, timer.turn(now + TIMEOUT) - now);
            assert!(ping <= seconds && ping + TURN >= seconds, "{count}: {ping:?}");
            assert!(response >= TIMEOUT && response <= TIMEOUT + TURN, "{count}: {response:?}");
        }
    }

    #[test]
    fn deadlines_are_put_off_to_the_next_turn() {
        let (start, millis) = (Instant::now(), Duration::from_millis);
        let turn = |after: u64| turn_at(start, start + millis(after)) - start;
        assert_eq!([0, 1, 499, 500, 501, 86_400_000].map(turn), [0, 500, 500, 500, 1_000, 86_400_000].map(millis));
    }

    #[tokio::test]
    async fn pings_are_sent_together() {
        let timer = Turns::default();
        let sleeps = (1..100).map(|number| {
            let deadline = timer.now() + TURN * number / 100;
            let mut sleep = timer.sleep_until(deadline);
            // What hyper does after each response.
            if number % 2 == 0 {
                timer.reset(&mut sleep, deadline);
            }
            (sleep, turn_at(*START, deadline))
        });
        let ends: Vec<(Instant, Instant)> = futures::future::join_all(sleeps.map(async |(sleep, turn)| {
            sleep.await;
            (timer.now(), turn)
        }))
        .await;
        assert!(ends.iter().all(|(end, turn)| end >= turn), "{ends:?}");
    }
}
