//! Work that takes the processor for long, such as rendering and parsing. Another thread takes the
//! tasks of the worker over, such as the renewal of Leases. Few works run at the same time: more
//! would take processor time from those tasks, and memory, and would not end sooner.

use tokio::sync::Semaphore;

/// Number of works at the same time, which is that of the operator's worker threads.
const MOST: usize = 2;
static PLACES: Places = Places::new(MOST);

/// Does `work` when fewer than two others are in progress, in the order of the calls.
///
/// # Panics
///
/// In a runtime with one thread only.
pub async fn compute<T>(work: impl FnOnce() -> T) -> T {
    PLACES.compute(work).await
}

/// Places for works.
struct Places(Semaphore);

impl Places {
    const fn new(most: usize) -> Self {
        Self(Semaphore::const_new(most))
    }

    async fn compute<T>(&self, work: impl FnOnce() -> T) -> T {
        // The semaphore is never closed, so this only waits.
        let _place = self.0.acquire().await;
        tokio::task::block_in_place(work)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use super::*;

    #[test]
    fn few_works_run_at_the_same_time_and_keep_no_worker_from_other_tasks() {
        const LIMIT: Duration = Duration::from_secs(30);
        static PLACES: Places = Places::new(2);
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
        let (started, starts) = mpsc::channel();
        let mut works = Vec::new();
        for _ in 0..2 {
            let (end, ended) = mpsc::channel::<()>();
            let started = started.clone();
            let work = move || {
                let _ = started.send(());
                ended.recv()
            };
            works.push((runtime.spawn(PLACES.compute(work)), end));
        }
        assert!((0..2).all(|_| starts.recv_timeout(LIMIT).is_ok()));
        let mut third = pin!(PLACES.compute(|| 3));
        assert!(third.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let (done, is_done) = mpsc::channel();
        runtime.spawn(async move { done.send(()) });
        is_done.recv_timeout(LIMIT).expect("the workers wait for the works");
        for (work, end) in works {
            end.send(()).unwrap();
            runtime.block_on(work).unwrap().unwrap();
        }
        assert_eq!(runtime.block_on(third), 3);
    }
}
