//! Identifies a cluster by the uid of its namespace `kube-system`, as is usual.

use k8s_openapi::api::core::v1::Namespace;
use kube::{Api, Client};

/// The namespace that every cluster has for as long as it exists.
pub const NAMESPACE: &str = "kube-system";

/// Maximum length of a uid.
const MAX_LENGTH: usize = 64;

/// The uid that identifies the cluster of `client`; `None` if its API server gives none.
///
/// # Errors
///
/// If the namespace can't be read.
pub async fn cluster_uid(client: &Client) -> kube::Result<Option<String>> {
    let uid = Api::<Namespace>::all(client.clone()).get_metadata(NAMESPACE).await?.metadata.uid;
    // An API server that is hostile may answer anything.
    Ok(uid.filter(|uid| uid.len() <= MAX_LENGTH && uid.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')))
}
