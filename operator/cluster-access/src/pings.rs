//! When the connections to spokes are checked with HTTP/2 pings. A process that wakes up for each
//! ping of thousands of connections is never at rest, so pings, and the time limits of their
//! responses, are due in common turns.

use std::pin::Pin;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use hyper::rt::{Sleep, Timer};
use hyper_util::rt::TokioTimer;

/// Interval of the turns. Deadlines are put off to the next one, so what is configured is less than
/// what is promised by that.
const TURN: Duration = Duration::from_millis(500);
/// Interval of pings of a connection, at least and at most: 5 s to 30 s with the turns.
const INTERVAL: Duration = Duration::from_millis(4_500);
const MAX_INTERVAL: Duration = Duration::from_millis(29_500);
/// Interval of the pings of all spokes together: of very many, each connection sends fewer.
const ALL: Duration = Duration::from_millis(6);
/// Time limit of the response: up to 3 s with the turns.
pub const TIMEOUT: Duration = Duration::from_millis(2_500);
/// The first turn. Nothing sets this clock.
static START: LazyLock<Instant> = LazyLock::new(Instant::now);

/// Interval of the pings of each connection, with this many `spokes`.
pub fn interval(spokes: usize) -> Duration {
    let all = ALL.saturating_mul(u32::try_from(spokes).unwrap_or(u32::MAX));
    all.saturating_sub(TURN).clamp(INTERVAL, MAX_INTERVAL)
}

/// A timer whose deadlines are turns.
#[derive(Clone, Debug, Default)]
pub struct Turns(TokioTimer);

impl Timer for Turns {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        self.sleep_until(self.now() + duration)
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        self.0.sleep_until(turn_at(*START, deadline))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, deadline: Instant) {
        self.0.reset(sleep, turn_at(*START, deadline));
    }

    fn now(&self) -> Instant {
        self.0.now()
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
        let intervals = [1, 800, 1_000, 5_000, usize::MAX].map(|spokes| (interval(spokes) + TURN).as_secs());
        assert_eq!(intervals, [5, 5, 6, 30, 30]);
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
