//! Stops writes when the Leases may be lost. A process that was stopped for longer than its Leases
//! last continues with the next instruction, not with a check of the Leases. So each write is
//! checked when it is sent, and again when the connection asks for its body.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::gate::{self, Gate};
use http::Request;
use kube::Client;
use kube::client::Body;

/// Time after a renewal for which writes pass; less than the duration of a Lease, so that a write
/// that passed reaches the API server before another replica starts. Only one that is delayed on
/// its way for longer than the rest arrives later.
pub const WRITABLE: Duration = Duration::from_secs(12);

/// The check of writes. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct Fence(Arc<Mutex<Option<Instant>>>);

/// A write that was not sent.
#[derive(Debug, thiserror::Error)]
#[error("not sent: the Lease of this replica may be lost")]
pub struct LeaseLost;

impl Fence {
    /// All Leases were renewed at `renewed` or later; `None` if there is none.
    pub fn renewed(&self, renewed: Option<Instant>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = renewed.map(|renewed| renewed + WRITABLE);
    }

    /// Whether writes pass.
    pub fn is_open(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_some_and(|until| Instant::now() < until)
    }

    /// The same as a condition.
    pub fn gate(&self) -> Gate {
        let fence = self.clone();
        Arc::new(move || fence.is_open())
    }

    /// Fails if `request` is a write, and writes don't pass.
    pub fn check<B>(&self, request: &Request<B>) -> Result<(), LeaseLost> {
        if gate::is_read(request) || self.is_open() { Ok(()) } else { Err(LeaseLost) }
    }

    /// A client that checks each write.
    pub fn guard(&self, client: Client) -> Client {
        let (namespace, fence) = (client.default_namespace().to_owned(), self.clone());
        let send = move |request: Request<Body>| {
            let (client, fence) = (client.clone(), fence.clone());
            async move {
                fence.check(&request).map_err(|lost| kube::Error::Service(Box::new(lost)))?;
                client.send(request).await
            }
        };
        Client::new(tower::service_fn(send), namespace)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::Api;
    use kube::api::DeleteParams;

    use super::*;

    #[tokio::test]
    async fn writes_stop_with_the_lease_and_reads_go_on() {
        let fence = Fence::default();
        let answers = tower::service_fn(|_: Request<Body>| async {
            let map = r#"{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}"#;
            Ok::<_, std::convert::Infallible>(http::Response::new(Body::from(map.as_bytes().to_vec())))
        });
        let maps = Api::<ConfigMap>::namespaced(fence.guard(Client::new(answers, "n")), "n");
        let long_ago = Instant::now().checked_sub(WRITABLE);
        for (renewed, passes) in [(None, false), (Some(Instant::now()), true), (long_ago, false)] {
            fence.renewed(renewed);
            let deleted = maps.delete("a", &DeleteParams::default()).await;
            assert_eq!(deleted.is_ok(), passes, "{deleted:?}");
            assert!(maps.get("a").await.is_ok());
        }
        let refused = maps.delete("a", &DeleteParams::default()).await.unwrap_err();
        assert!(crate::error_text(&refused).contains("Lease"), "{refused}");
    }
}
