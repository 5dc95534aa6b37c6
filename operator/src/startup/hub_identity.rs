//! Identifies the hub.

use std::time::Duration;

use knative_operator_runtime::error_text;
use kube::Client;

use knative_operator_cluster_access::identity::cluster_uid;
use knative_operator_objects::Hub;

/// Delay before a failed request is retried.
const RETRY: Duration = Duration::from_secs(1);

/// Reads who the hub is, until that succeeds; `name` is for people.
pub async fn read(client: &Client, name: Option<String>) -> Hub {
    loop {
        match cluster_uid(client).await {
            Ok(Some(uid)) => return Hub { uid, name: name.filter(|name| !name.is_empty()) },
            Ok(None) => tracing::warn!("the namespace kube-system has no uid, so the hub can't be identified"),
            Err(error) => {
                tracing::warn!(
                    error = error_text(&error),
                    "cannot read the namespace kube-system, which identifies the hub"
                );
            }
        }
        tokio::time::sleep(RETRY).await;
    }
}
