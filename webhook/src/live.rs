//! Reads from the API server at the time of a review: what an informer has reported may be old.

use std::time::Duration;

use knative_operator_runtime::error_text;
use kube::Client;

/// Time limit of a request. The API server waits 10 s for the webhook.
const TIMEOUT: Duration = Duration::from_secs(4);

/// Why something can't be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// There is no API server.
    #[error("there is no API server")]
    NoServer,
    /// The request failed.
    #[error("{}", error_text(.0))]
    Failed(kube::Error),
    /// The API server takes too long.
    #[error("the API server did not answer")]
    TooSlow,
}

/// The API server.
#[derive(Clone)]
pub struct Live(Option<Client>);

impl Live {
    /// Reads with `client`.
    pub fn new(client: Client) -> Self {
        Self(Some(client))
    }

    /// There is no API server.
    #[cfg(test)]
    pub fn none() -> Self {
        Self(None)
    }

    /// What `read` reads; `None` if the API server doesn't have or serve it.
    pub async fn read<T>(&self, read: impl AsyncFnOnce(Client) -> kube::Result<T>) -> Result<Option<T>, ReadError> {
        let Some(client) = &self.0 else { return Err(ReadError::NoServer) };
        match tokio::time::timeout(TIMEOUT, read(client.clone())).await {
            Ok(Ok(found)) => Ok(Some(found)),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
            Ok(Err(error)) => Err(ReadError::Failed(error)),
            Err(_) => Err(ReadError::TooSlow),
        }
    }
}
