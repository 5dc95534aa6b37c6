//! What passes cost, and the rest between them.

use std::pin::pin;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Time between a change and a pass, in which further changes are collected.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// The rest after a pass, in processor times of the pass: passes that take less than 500 ms take at
/// most a third of a core.
const REST: u32 = 2;
/// The longest rest after a pass.
const MAX_REST: Duration = Duration::from_secs(1);
/// The same as long as nobody notices it: up to [`SHORT_REST`], passes take a twentieth of a core.
const UNNOTICED: u32 = 20;
/// A rest that nobody notices, compared with the time that a cluster needs for an update.
const SHORT_REST: Duration = Duration::from_millis(100);

/// The output of `future`, and the processor time that it took.
pub async fn measured<F: Future>(future: F) -> (F::Output, Duration) {
    let (mut future, mut spent) = (pin!(future), Duration::ZERO);
    let output = std::future::poll_fn(|cx| {
        let before = of_thread();
        let polled = future.as_mut().poll(cx);
        spent += of_thread().saturating_sub(before);
        polled
    });
    (output.await, spent)
}

/// Processor time of the thread.
fn of_thread() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap_or_default()
}

/// The rest between passes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rest {
    until: Option<Instant>,
    least: Option<Instant>,
}

impl Rest {
    /// Records a pass that ended at `now` and took the processor time `spent`, of which `writing`
    /// is that of its writes. They are as many as clusters whose turn it is, so a rest after them
    /// would save nothing.
    pub fn after(&mut self, spent: Duration, writing: Duration, now: Instant) {
        let spent = spent.saturating_sub(writing);
        let start = self.until.map_or(now, |until| until.max(now));
        self.until = Some((start + spent * REST).min(now + MAX_REST));
        self.least = self.least.max(Some(now + (spent * UNNOTICED).min(SHORT_REST)));
    }

    /// When the pass begins that a change at `now` asks for.
    pub fn next(&self, now: Instant) -> Instant {
        [self.until, self.least].into_iter().flatten().fold(now + DEBOUNCE, Instant::max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_take_at_most_a_third_of_a_core() {
        let (now, mut rest) = (Instant::now(), Rest::default());
        let millis = Duration::from_millis;
        let after = |rest: &Rest, at: Instant| rest.next(at) - now;
        assert_eq!(after(&rest, now), DEBOUNCE);
        // Passes of two fleets, one after another.
        rest.after(millis(60), millis(0), now);
        rest.after(millis(40), millis(0), now + millis(40));
        assert_eq!(after(&rest, now + millis(40)), millis(200));
        // After the rest, a change is collected with the next ones only.
        assert_eq!(after(&rest, now + millis(500)), millis(500) + DEBOUNCE);
        rest.after(millis(900), millis(0), now + millis(500));
        assert_eq!(after(&rest, now + millis(500)), millis(500) + MAX_REST);
    }

    #[test]
    fn passes_that_take_little_are_rare_and_no_rest_follows_from_writes() {
        let (now, millis) = (Instant::now(), Duration::from_millis);
        let after = |passes: &[(u64, u64)]| {
            let mut rest = Rest::default();
            passes.iter().for_each(|(spent, writing)| rest.after(millis(*spent), millis(*writing), now));
            rest.next(now) - now
        };
        let cases: [(&[(u64, u64)], Duration); 7] = [
            (&[(1, 0)], DEBOUNCE),
            (&[(4, 0)], millis(80)),
            (&[(10, 0)], SHORT_REST),
            (&[(80, 0)], millis(160)),
            // Of ten fleets, one after another.
            (&[(8, 0); 10], millis(160)),
            // Writes to all clusters whose turn it is.
            (&[(180, 100)], millis(160)),
            (&[(100, 100)], DEBOUNCE),
        ];
        for (passes, expected) in cases {
            assert_eq!(after(passes), expected, "{passes:?}");
        }
    }

    #[tokio::test]
    async fn waiting_takes_no_processor_time() {
        let work = async {
            tokio::time::sleep(Duration::from_millis(200)).await;
            let started = of_thread();
            while of_thread() < started + Duration::from_millis(5) {
                std::hint::spin_loop();
            }
            tokio::task::yield_now().await;
            7
        };
        let (output, spent) = measured(work).await;
        assert_eq!(output, 7);
        assert!((Duration::from_millis(5)..Duration::from_millis(150)).contains(&spent), "{spent:?}");
    }
}
