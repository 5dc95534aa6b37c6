//! Lists objects, with errors that name the permission which the caller needs.

use std::fmt::Debug;

use knative_operator_runtime::error_text;
use knative_operator_runtime::untyped::api_resource;
use knative_operator_shared::api::Kind;
use knative_operator_shared::label::{FLEET_VERSION, GROUP};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde::de::DeserializeOwned;

/// Plural of the approvals of fleets.
pub const APPROVALS: &str = "knativefleetapprovals";

/// The objects of `api`, which are called `resource`, in `namespace` or in all; `None` if the API
/// server doesn't serve them.
pub async fn list<K>(api: &Api<K>, resource: &str, namespace: Option<&str>) -> Result<Option<Vec<K>>, String>
where
    K: Clone + DeserializeOwned + Debug,
{
    match api.list(&ListParams::default()).await {
        Ok(list) => Ok(Some(list.items)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => {
            let place = namespace.map_or_else(|| "in all namespaces".to_owned(), |name| format!("in namespace {name}"));
            let why = explained(&error, "list", &format!("{resource} {place}"));
            Err(format!("cannot list {resource}: {why}"))
        }
    }
}

/// The objects of `kind` in `namespace` or in all; `None` if the API server doesn't serve them.
pub async fn objects(
    client: &Client,
    kind: Kind,
    namespace: Option<&str>,
) -> Result<Option<Vec<DynamicObject>>, String> {
    let resource = api_resource(kind);
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    list(&api, &format!("{}.{GROUP}", kind.plural()), namespace).await
}

/// The approvals of fleets in `namespace` or in all; `None` if the API server doesn't serve them.
pub async fn approvals(client: &Client, namespace: Option<&str>) -> Result<Option<Vec<DynamicObject>>, String> {
    let gvk = GroupVersionKind::gvk(GROUP, FLEET_VERSION, "KnativeFleetApproval");
    let resource = ApiResource::from_gvk_with_plural(&gvk, APPROVALS);
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    list(&api, &format!("{APPROVALS}.{GROUP}"), namespace).await
}

/// That the API server doesn't serve `kind`.
pub fn not_installed(kind: Kind) -> String {
    format!("the API server does not serve {}.{GROUP}: the operator is not installed there", kind.plural())
}

/// `error`, with the permission that the caller needs: `verb` on `what`.
pub fn explained(error: &kube::Error, verb: &str, what: &str) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            format!("{}; you need the permission \"{verb}\" on {what}", error_text(error))
        }
        error => error_text(error),
    }
}
