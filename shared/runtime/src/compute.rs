//! Work that takes the processor for long, such as rendering and parsing. Another thread takes the
//! tasks of the worker over, such as the renewal of Leases. Few works run at the same time: more
//! would take processor time from those tasks, and memory, and would not end sooner. Namespaces
//! take turns, so that nobody keeps others waiting with many resources.

use tokio::sync::Semaphore;

use crate::queues::Queues;

/// Number of works at the same time, which is that of the operator's worker threads. As many of a
/// namespace are in the queue with those of others.
const MOST: usize = 2;
static PLACES: Places = Places::new(MOST);

/// Does `work` for a resource in `namespace` of the hub when fewer than two others are in progress.
/// Works of a namespace are in the order of the calls. One waits for at most two of each other
/// namespace, and for those before it of its own.
///
/// # Panics
///
/// In a runtime with one thread only.
pub async fn compute<T>(namespace: &str, work: impl FnOnce() -> T) -> T {
    PLACES.compute(namespace, work).await
}

/// Places for works.
struct Places {
    all: Semaphore,
    namespaces: Queues,
}

impl Places {
    const fn new(most: usize) -> Self {
        Self { all: Semaphore::const_new(most), namespaces: Queues::new(MOST) }
    }

    async fn compute<T>(&self, namespace: &str, work: impl FnOnce() -> T) -> T {
        // Its semaphores are never closed, so this only waits.
        let _turn = self.namespaces.enter(namespace).await;
        let _place = self.all.acquire().await;
        tokio::task::block_in_place(work)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::{Mutex, mpsc};
    use std::task::{Context, Waker};
    use std::time::Duration;

    use futures::future::{join, join_all};

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
            works.push((runtime.spawn(PLACES.compute("a", work)), end));
        }
        assert!((0..2).all(|_| starts.recv_timeout(LIMIT).is_ok()));
        let mut third = pin!(PLACES.compute("b", || 3));
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

    #[test]
    fn namespace_with_many_works_keeps_no_other_waiting() {
        let (places, done) = (Places::new(1), Mutex::new(Vec::new()));
        let note = |namespace| done.lock().unwrap().push(namespace);
        let work = |namespace: &'static str| places.compute(namespace, move || note(namespace));
        let works = join_all(["a", "a", "a", "a", "a", "b", "c"].map(work));
        let place = places.all.try_acquire().unwrap();
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        // All works are in the queue before the place is free.
        runtime.block_on(join(works, async { drop(place) }));
        assert_eq!(*done.lock().unwrap(), ["a", "a", "b", "c", "a", "a", "a"]);
    }
}
