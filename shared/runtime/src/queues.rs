//! Queues by a name, such as that of a namespace or a user: few of each are in the queue with the
//! others, so that nobody keeps others waiting with many works.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Queues by a name. Those that nobody uses are forgotten.
#[derive(Debug)]
pub struct Queues {
    most: usize,
    all: Mutex<BTreeMap<String, Weak<Semaphore>>>,
}

impl Queues {
    /// Queues that let `most` of each name through at a time.
    pub const fn new(most: usize) -> Self {
        Self { most, all: Mutex::new(BTreeMap::new()) }
    }

    /// Waits until fewer than the most of `name` have a permit, in the order of the calls.
    pub async fn enter(&self, name: &str) -> Option<OwnedSemaphorePermit> {
        // The semaphores are never closed.
        self.queue(name).acquire_owned().await.ok()
    }

    fn queue(&self, name: &str) -> Arc<Semaphore> {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(queue) = all.get(name).and_then(Weak::upgrade) {
            return queue;
        }
        all.retain(|_, queue| queue.strong_count() > 0);
        let queue = Arc::new(Semaphore::new(self.most));
        all.insert(name.to_owned(), Arc::downgrade(&queue));
        queue
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    #[tokio::test]
    async fn names_have_queues_of_their_own_while_they_use_them() {
        let queues = Queues::new(2);
        let first = [queues.enter("a").await, queues.enter("a").await];
        let mut third = pin!(queues.enter("a"));
        assert!(third.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let other = queues.enter("b").await;
        assert_eq!(queues.all.lock().unwrap().len(), 2);
        drop((first, other));
        drop(third.await);
        drop(queues.enter("c").await);
        assert_eq!(queues.all.lock().unwrap().len(), 1);
    }
}
