//! Reads from the API server at the time of a review: what an informer has reported may be old.

use std::time::Duration;

use knative_operator_runtime::error_text;
use kube::Client;

/// Time limit of a request. The API server waits 5 s for the webhook.
const TIMEOUT: Duration = Duration::from_secs(2);

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
    ///
    /// # Errors
    ///
    /// Why it can't be read, for people.
    pub async fn read<T>(&self, read: impl AsyncFnOnce(Client) -> kube::Result<T>) -> Result<Option<T>, String> {
        let Some(client) = &self.0 else { return Err("there is no API server".to_owned()) };
        match tokio::time::timeout(TIMEOUT, read(client.clone())).await {
            Ok(Ok(found)) => Ok(Some(found)),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => Ok(None),
            Ok(Err(error)) => Err(error_text(&error)),
            Err(_) => Err("the API server did not answer".to_owned()),
        }
    }
}
