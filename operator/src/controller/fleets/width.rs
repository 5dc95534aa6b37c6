//! How many writes for a fleet are sent at the same time: fewer to a hub that has too much to do,
//! and refuses some (429, API priority and fairness). Pure.

/// Writes for a fleet at the same time.
pub const CONCURRENT_WRITES: usize = 16;

/// One more write at the same time is tried after this many times as many were answered as there
/// are at a time.
const PATIENCE: usize = 4;

/// The number of writes at the same time: half as many after a refusal, and one more after a while.
#[derive(Clone, Copy, Debug)]
pub struct Width {
    current: usize,
    answered: usize,
}

impl Default for Width {
    fn default() -> Self {
        Self { current: CONCURRENT_WRITES, answered: 0 }
    }
}

impl Width {
    /// The number.
    pub fn get(self) -> usize {
        self.current
    }

    /// A write was answered, and not refused for this reason.
    pub fn accept(&mut self) {
        self.answered += 1;
        if self.answered >= self.current * PATIENCE {
            *self = Self { current: (self.current + 1).min(CONCURRENT_WRITES), answered: 0 };
        }
    }

    /// A write was refused that was sent when there were this many at the same time. Those that
    /// were sent together count once. Returns whether fewer are possible.
    pub fn refuse(&mut self, at: usize) -> bool {
        let before = self.current;
        // Its number may be that of long ago.
        *self = Self { current: before.min((at / 2).max(before / 2).max(1)), answered: 0 };
        at.max(before) > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_that_are_refused_together_count_once() {
        let mut width = Width::default();
        assert!((0..14).all(|_| width.refuse(CONCURRENT_WRITES)));
        assert_eq!(width.get(), CONCURRENT_WRITES / 2);
        while width.refuse(width.get()) {}
        assert_eq!(width.get(), 1);
        (0..1000).for_each(|_| width.accept());
        assert_eq!(width.get(), CONCURRENT_WRITES);
        // It was sent when there were few.
        assert!(width.refuse(1));
        assert_eq!(width.get(), CONCURRENT_WRITES / 2);
    }

    #[test]
    fn few_writes_are_refused_by_a_hub_that_takes_few_at_a_time() {
        for seats in 1..=CONCURRENT_WRITES {
            let (mut width, mut answered, mut refused) = (Width::default(), 0, 0);
            while answered < 1000 {
                let at = width.get();
                (0..at.min(seats)).for_each(|_| width.accept());
                for _ in seats..at {
                    width.refuse(at);
                }
                (answered, refused) = (answered + at.min(seats), refused + at.saturating_sub(seats));
            }
            assert!(refused <= 250, "{seats}: {refused}");
        }
    }
}
