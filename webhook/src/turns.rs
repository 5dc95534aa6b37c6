//! Work on fleets, which have up to thousands of clusters, and on large resources: on another
//! thread, one after another, so that other reviews don't wait. Namespaces take turns, so that
//! nobody keeps others waiting with many of them.

use std::sync::Arc;

use knative_operator_runtime::queues::Queues;
use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// Does one piece of work at a time. Clones share the turn.
#[derive(Clone)]
pub struct Turns {
    turn: Arc<Semaphore>,
    namespaces: Arc<Queues>,
}

impl Turns {
    /// Nobody works.
    pub fn new() -> Self {
        Self { turn: Arc::new(Semaphore::new(1)), namespaces: Arc::new(Queues::new(1)) }
    }

    /// Does `work` for a resource in `namespace` in turn. The thread has the turn: it goes on if
    /// the client leaves.
    ///
    /// # Errors
    ///
    /// If `work` panics.
    pub async fn run<T: Send + 'static>(
        &self,
        namespace: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let place = self.namespaces.enter(namespace).await;
        let turn = Arc::clone(&self.turn).acquire_owned().await;
        let done = tokio::task::spawn_blocking(move || {
            let _turn = (turn, place);
            work()
        });
        done.await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use futures::future::{join, join_all};

    use super::*;

    #[tokio::test]
    async fn namespace_with_many_fleets_keeps_no_other_waiting() {
        let (turns, done) = (Turns::new(), Arc::new(Mutex::new(Vec::new())));
        let work = |namespace: &'static str| {
            let done = Arc::clone(&done);
            turns.run(namespace, move || done.lock().unwrap().push(namespace))
        };
        let works = join_all(["a", "a", "a", "b", "c"].map(work));
        let turn = turns.turn.try_acquire().unwrap();
        // All are in the queue before the turn is free.
        join(works, async { drop(turn) }).await;
        assert_eq!(*done.lock().unwrap(), ["a", "b", "c", "a", "a"]);
    }
}
