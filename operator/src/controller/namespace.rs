//! The namespace of an installation on a spoke: the canonical one, or the resource's own if the Go
//! operator used that.

use std::borrow::Cow;

use knative_operator_shared::api::Knative;
use knative_operator_shared::label::TAKE_OVER;
use kube::Client;

use super::context::Context;
use super::state::ReconcilerState;
use crate::apply::anchor::InventoryStore;
use crate::apply::store_error::StoreError;

/// Sets the namespace of the installation in `resource`. Asks the cluster once, and only if the Go
/// operator may have installed it.
pub async fn resolve_namespace<'r>(
    cx: &Context,
    resource: &'r Knative,
    state: &mut ReconcilerState,
    client: &Client,
) -> Result<Cow<'r, Knative>, StoreError> {
    let own = resource.namespace();
    if resource.common().cluster_profile_ref.is_none() || own == resource.target_namespace() {
        return Ok(Cow::Borrowed(resource));
    }
    let stays_in_own_namespace = if let Some(stays_in_own_namespace) = state.stays_in_own_namespace {
        stays_in_own_namespace
    } else {
        // Anybody who may write ConfigMaps there can create an anchor: it counts only if the
        // resource was installed before, or if the operator created the namespace, and if there is
        // none in the canonical namespace.
        let own_store = InventoryStore::of(&resource.clone().installed_in(own));
        let has_installed = resource.has_installed();
        let takes_over = resource.annotation(TAKE_OVER).is_some();
        let stays_in_own_namespace = (has_installed || (takes_over && own_store.has_own_namespace(client).await?))
            && own_store.exists(client).await?
            && !InventoryStore::of(resource).exists(client).await?;
        if stays_in_own_namespace {
            let canonical = resource.target_namespace();
            let note = format!(
                "The Go operator installed it in namespace {own} of the target cluster, where it stays; new installations use namespace {canonical}. \
                     To move it, delete the resource and create it again"
            );
            cx.events.warning(resource, "NamespaceKept", note);
        }
        // While another resource owns the installation, an annotation may still change that.
        if stays_in_own_namespace || state.occupied.is_none() {
            state.stays_in_own_namespace = Some(stays_in_own_namespace);
        }
        stays_in_own_namespace
    };
    Ok(if stays_in_own_namespace { Cow::Owned(resource.clone().installed_in(own)) } else { Cow::Borrowed(resource) })
}
