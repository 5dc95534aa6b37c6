//! Untyped access to objects: one that is invalid must not fail the whole list.

use knative_operator_shared::api::{Component, Kind, Knative, KnativeEventing, KnativeServing};
use knative_operator_shared::label::GROUP;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind, PartialObjectMeta};
use kube::{Api, Client};

/// The resource of `kind`, to read its objects untyped.
pub fn api_resource(kind: impl Into<Kind>) -> ApiResource {
    let kind = kind.into();
    ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(GROUP, kind.version(), kind.name()), kind.plural())
}

/// API of the resource that returns metadata only.
pub fn metadata_api(hub: &Client, resource: &Knative) -> Api<PartialObjectMeta<DynamicObject>> {
    let kind = match resource.component() {
        Component::Serving => ApiResource::erase::<KnativeServing>(&()),
        Component::Eventing => ApiResource::erase::<KnativeEventing>(&()),
    };
    Api::namespaced_with(hub.clone(), resource.namespace(), &kind)
}

/// The number of objects in `api`, which lists one of them.
///
/// # Errors
///
/// Those of the API server.
pub async fn count(api: &Api<DynamicObject>) -> kube::Result<u64> {
    let list = api.list_metadata(&ListParams::default().limit(1)).await?;
    let more = list.metadata.remaining_item_count.unwrap_or_default();
    Ok(list.items.len() as u64 + u64::try_from(more).unwrap_or_default())
}
