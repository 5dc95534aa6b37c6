//! What a resource of a fleet has installed, and where. Pure.

use knative_operator_shared::api::Knative;
use knative_operator_shared::condition::INSTALL_SUCCEEDED;
use knative_operator_shared::label::CLUSTER_UID;

use crate::controller::conditions::OCCUPIED;

/// Uid of the cluster of `resource`, if the operator has reached it.
pub fn cluster_uid(resource: &Knative) -> Option<&str> {
    resource.status()?.annotations.get(CLUSTER_UID).map(String::as_str).filter(|uid| !uid.is_empty())
}

/// Whether the cluster of `resource` has another owner.
pub fn is_occupied(resource: &Knative) -> bool {
    let conditions = resource.status().into_iter().flat_map(|status| &status.conditions);
    let mut installed = conditions.filter(|condition| condition.type_ == INSTALL_SUCCEEDED);
    installed.any(|condition| condition.status == "False" && condition.reason.as_deref() == Some(OCCUPIED))
}

/// The uid of the cluster on which `resource` has installed something.
pub fn installed_on(resource: &Knative) -> Option<&str> {
    cluster_uid(resource).filter(|_| resource.installed_version().is_some() && !is_occupied(resource))
}
