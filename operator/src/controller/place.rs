//! Where on its spoke a resource is installed: in the canonical namespace, unless the Go operator had it in the resource's own.

use std::borrow::Cow;

use knative_operator_shared::api::Knative;
use kube::Client;

use super::Context;
use super::actor::Memory;
use crate::apply::home::{Home, HomeError};

/// `resource`, which knows from now on where it is installed. The cluster is asked only about what another operator may have
/// installed, and once.
pub async fn settle<'r>(
    cx: &Context,
    resource: &'r Knative,
    memory: &mut Memory,
    client: &Client,
) -> Result<Cow<'r, Knative>, HomeError> {
    let own = resource.namespace();
    if resource.common().cluster_profile_ref.is_none() || own == resource.target_namespace() {
        return Ok(Cow::Borrowed(resource));
    }
    let stays = if let Some(stays) = memory.stays {
        stays
    } else {
        let finalizers = resource.meta().finalizers.iter().flatten();
        let old = finalizers.into_iter().any(|f| f == resource.component().finalizer());
        let stays = old && Home::of(&resource.clone().installed_in(own)).is_there(client).await?;
        if stays {
            let canonical = resource.target_namespace();
            let note = format!(
                "The Go operator has installed it in namespace {own} of the target cluster, where it stays; others are installed in {canonical}. \
                     To move it, delete the resource and create it again"
            );
            cx.events.warning(resource, "NamespaceKept", note);
        }
        memory.stays = Some(stays);
        stays
    };
    Ok(if stays { Cow::Owned(resource.clone().installed_in(own)) } else { Cow::Borrowed(resource) })
}
