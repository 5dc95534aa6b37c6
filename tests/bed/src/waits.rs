//! What tests wait for: each test adds a line to `target/test-times.tsv`, from which `make test`
//! prints the slowest ones.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::tools;

/// Time of each wait, by thread (which has the name of its test) and subject.
static WAITS: Mutex<Option<HashMap<(String, String), Duration>>> = Mutex::new(None);

fn test() -> String {
    std::thread::current().name().unwrap_or_default().to_owned()
}

/// Runs `wait` and records its duration for the test of this thread.
pub async fn timed<T>(subject: &str, wait: impl Future<Output = T>) -> T {
    let started = Instant::now();
    let outcome = wait.await;
    let mut waits = WAITS.lock().unwrap_or_else(PoisonError::into_inner);
    *waits.get_or_insert_default().entry((test(), subject.to_owned())).or_default() += started.elapsed();
    outcome
}

/// Records that the test of this thread took `elapsed`: seconds, name, and its three longest waits.
/// Waits at the same time count each.
pub fn finish(elapsed: Duration) {
    let (name, mut own) = (test(), Vec::new());
    let mut waits = WAITS.lock().unwrap_or_else(PoisonError::into_inner);
    waits.get_or_insert_default().retain(|(test, subject), took| {
        let other = *test != name;
        if !other {
            own.push((*took, subject.clone()));
        }
        other
    });
    drop(waits);
    own.sort_by(|a, b| b.cmp(a));
    let longest: Vec<_> =
        own.iter().take(3).map(|(took, subject)| format!("{subject} {:.0} s", took.as_secs_f64())).collect();
    let line = format!("{:.1}\t{name}\t{}\n", elapsed.as_secs_f64(), longest.join(", "));
    tools::append("test-times.tsv", &line);
}
