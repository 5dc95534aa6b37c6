//! Which faults happen when: a function of the seed.

use std::fmt;
use std::time::Duration;

use fastrand::Rng;

/// Before or after the API server has handled the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It doesn't receive it.
    Before,
    /// It has handled it.
    After,
}

/// A fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// An error as the response.
    Status {
        /// HTTP status code.
        code: u16,
        /// The header `Retry-After` in seconds.
        retry_after: Option<u16>,
        /// When it happens.
        stage: Stage,
    },
    /// The connection is closed without a response.
    Reset(Stage),
    /// The response ends in the middle.
    Cut,
    /// The request is late.
    Delay(Duration),
    /// No response until the end of the window.
    Hang,
    /// Responses that an API server may take from its cache have the state at the start of the
    /// schedule, until the end of the window.
    Stale,
    /// A watch ends in the middle of a line.
    WatchCut,
    /// A watch ends with the event `ERROR`, 410 Gone.
    WatchExpired,
    /// Events of a watch are late.
    WatchDelay(Duration),
    /// Events of a watch come twice.
    WatchRepeat,
    /// A watch has no bookmarks.
    WatchNoBookmarks,
}

impl Fault {
    /// Whether it can hit a request, at its start.
    pub fn hits(self, is_read: bool, is_watch: bool) -> bool {
        match self {
            Self::Status { code: 409, .. } => !is_read,
            Self::Cut => !is_watch,
            Self::Stale => is_read,
            fault => !fault.is_of_watches(),
        }
    }

    /// Whether it hits a watch that has begun.
    pub fn is_of_watches(self) -> bool {
        matches!(
            self,
            Self::WatchCut | Self::WatchExpired | Self::WatchDelay(_) | Self::WatchRepeat | Self::WatchNoBookmarks
        )
    }
}

/// A time in which a fault hits some of the requests.
#[derive(Clone, Copy, Debug)]
pub struct Window {
    /// Its start.
    pub start: Duration,
    /// Its end.
    pub end: Duration,
    /// The fault.
    pub fault: Fault,
    /// Percentage of the requests that it hits.
    pub percent: u8,
}

impl Window {
    /// Whether `time` is within.
    pub fn contains(&self, time: Duration) -> bool {
        (self.start..self.end).contains(&time)
    }
}

impl fmt::Display for Window {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { start, end, fault, percent } = self;
        write!(f, "{:.2}-{:.2} s: {fault:?} in {percent} %", start.as_secs_f64(), end.as_secs_f64())
    }
}

/// The faults of one API server.
#[derive(Debug)]
pub struct Schedule {
    /// The seed.
    pub seed: u64,
    /// The windows, which may overlap.
    pub windows: Vec<Window>,
}

impl Schedule {
    /// The schedule of `seed` with `count` windows within `length`.
    pub fn new(seed: u64, count: usize, length: Duration) -> Self {
        let mut random = Rng::with_seed(seed);
        let mut window = || {
            let start = length.mul_f64(random.f64() * 0.8);
            let end = (start + length.mul_f64(0.1 + random.f64() * 0.4)).min(length);
            Window { start, end, fault: fault(&mut random, length), percent: [10, 30, 60, 100][random.usize(..4)] }
        };
        Self { seed, windows: (0..count).map(|_| window()).collect() }
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.windows.iter().try_for_each(|window| writeln!(f, "    {window}"))
    }
}

fn fault(random: &mut Rng, length: Duration) -> Fault {
    let stage = if random.bool() { Stage::Before } else { Stage::After };
    match random.usize(..17) {
        0 => Fault::Status { code: 429, retry_after: Some(1), stage: Stage::Before },
        1 => Fault::Status { code: 429, retry_after: None, stage: Stage::Before },
        2 => Fault::Status { code: 500, retry_after: None, stage },
        3 => Fault::Status { code: 503, retry_after: None, stage: Stage::Before },
        4 => Fault::Status { code: 504, retry_after: None, stage },
        5 => Fault::Status { code: 409, retry_after: None, stage: Stage::Before },
        6 => Fault::Reset(stage),
        7 => Fault::Cut,
        8 => Fault::Delay(length.mul_f64(random.f64() * 0.5)),
        9 => Fault::Hang,
        10 => Fault::WatchCut,
        11 => Fault::WatchExpired,
        12 => Fault::WatchDelay(length.mul_f64(random.f64() * 0.3)),
        13 => Fault::Status { code: 401, retry_after: None, stage: Stage::Before },
        14 | 15 => Fault::Stale,
        _ => [Fault::WatchRepeat, Fault::WatchNoBookmarks][random.usize(..2)],
    }
}
