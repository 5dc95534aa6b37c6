//! What passes cost, and the rest between them.

use std::pin::pin;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

/// Time between a change and a pass, in which further changes are collected.
const DEBOUNCE: Duration = Duration::from_millis(50);
/// The rest after a pass, in processor times of the pass: passes that take less than 250 ms take at
/// most a fifth of a core.
const REST: u32 = 4;
/// The longest rest after a pass.
const MAX_REST: Duration = Duration::from_secs(1);

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
}

impl Rest {
    /// Records a pass that ended at `now` and took the processor time `spent`.
    pub fn after(&mut self, spent: Duration, now: Instant) {
        let start = self.until.map_or(now, |until| until.max(now));
        self.until = Some((start + spent * REST).min(now + MAX_REST));
    }

    /// When the pass begins that a change at `now` asks for.
    pub fn next(&self, now: Instant) -> Instant {
        let soon = now + DEBOUNCE;
        self.until.map_or(soon, |until| until.max(soon))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_take_at_most_a_fifth_of_a_core() {
        let (now, mut rest) = (Instant::now(), Rest::default());
        let millis = Duration::from_millis;
        let after = |rest: &Rest, at: Instant| rest.next(at) - now;
        assert_eq!(after(&rest, now), DEBOUNCE);
        // Passes of two fleets, one after another.
        rest.after(millis(30), now);
        rest.after(millis(20), now + millis(20));
        assert_eq!(after(&rest, now + millis(20)), millis(200));
        // After the rest, a change is collected with the next ones only.
        assert_eq!(after(&rest, now + millis(500)), millis(500) + DEBOUNCE);
        rest.after(millis(900), now + millis(500));
        assert_eq!(after(&rest, now + millis(500)), millis(500) + MAX_REST);
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
