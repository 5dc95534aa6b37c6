//! The namespace of an installation on a spoke: the canonical one, or the resource's own if the Go
//! operator used that.

use std::borrow::Cow;
use std::collections::BTreeSet;

use knative_operator_shared::api::Knative;
use kube::Client;
use serde_json::{Value, json};

use super::context::Context;
use super::state::ReconcilerState;
use knative_operator_apply::anchor::InventoryStore;
use knative_operator_apply::places;
use knative_operator_apply::store_error::StoreError;
use knative_operator_objects::plan::{Phase, Plan};

/// Sets the namespace of the installation in `resource`. Asks the cluster once.
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
        // Anybody who may write ConfigMaps there can create an anchor: it counts only if there is
        // none in the canonical namespace, and if the component is installed there.
        let own_store = InventoryStore::of(&resource.clone().installed_in(own));
        let stays_in_own_namespace = own_store.exists(client).await?
            && !InventoryStore::of(resource).exists(client).await?
            && shows(resource, &places::installed_in(client, resource.component()).await?);
        if stays_in_own_namespace {
            let canonical = resource.target_namespace();
            let note = format!(
                "The Go operator installed it in namespace {own} of the target cluster, where it stays; new installations use namespace {canonical}. \
                     To move it, delete the resource and create it again"
            );
            cx.events.warning(resource, "NamespaceKept", note);
        }
        state.stays_in_own_namespace = Some(stays_in_own_namespace);
        stays_in_own_namespace
    };
    Ok(if stays_in_own_namespace { Cow::Owned(resource.clone().installed_in(own)) } else { Cow::Borrowed(resource) })
}

/// The Namespace to create on a spoke: the plan's, or one with the settings of the spec.
pub fn manifest(resource: &Knative, plan: &Plan) -> Value {
    if let Some(planned) = plan.phase(Phase::Namespaces).next() {
        return plan.object_of(planned);
    }
    let mut namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"labels": {}}});
    knative_operator_render::apply_namespace_settings(&mut namespace, resource);
    namespace
}

/// Whether the component is installed in the namespace of `resource`, as far as the namespaces
/// `found` show. A deletion that was interrupted may have deleted all that shows it.
fn shows(resource: &Knative, found: &BTreeSet<String>) -> bool {
    found.contains(resource.namespace()) || (found.is_empty() && resource.is_terminating() && resource.has_installed())
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::KnativeServing;

    use super::*;

    #[test]
    fn anchor_alone_does_not_show_an_installation() {
        let resource = |is_terminating: bool, has_installed: bool| {
            let deleted = is_terminating.then_some("2026-01-01T00:00:00Z");
            let version = has_installed.then_some("1.22.1");
            let found: KnativeServing = serde_json::from_value(json!({
                "apiVersion": "operator.knative.dev/v1beta1", "kind": "KnativeServing",
                "metadata": {"name": "a", "namespace": "team", "deletionTimestamp": deleted},
                "spec": {}, "status": {"version": version},
            }))
            .unwrap();
            Knative::Serving(found)
        };
        for (namespaces, is_terminating, has_installed, is_shown) in [
            // The status was lost.
            (&["team"][..], false, false, true),
            (&["team"], true, false, true),
            // Somebody who may write ConfigMaps there created the anchor.
            (&[], false, true, false),
            (&["knative-serving"], false, true, false),
            (&["knative-serving"], true, true, false),
            // The rest of a deletion.
            (&[], true, true, true),
            (&[], true, false, false),
        ] {
            let found = namespaces.iter().map(|name| (*name).to_owned()).collect();
            let resource = resource(is_terminating, has_installed);
            assert_eq!(shows(&resource, &found), is_shown, "{namespaces:?} {is_terminating} {has_installed}");
        }
    }
}
