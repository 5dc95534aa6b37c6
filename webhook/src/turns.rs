//! Work on fleets, which have up to thousands of clusters: on another thread, one after another, so
//! that other reviews don't wait.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::JoinError;

/// Does one piece of work at a time. Clones share the turn.
#[derive(Clone)]
pub struct Turns(Arc<Semaphore>);

impl Turns {
    /// Nobody works.
    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }

    /// Does `work` in turn. The thread has the turn: it goes on if the client leaves.
    ///
    /// # Errors
    ///
    /// If `work` panics.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> Result<T, JoinError> {
        let turn = Arc::clone(&self.0).acquire_owned().await;
        let done = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            work()
        });
        done.await
    }
}
