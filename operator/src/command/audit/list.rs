//! Lists objects, with errors that name the permission which the caller needs.

use std::fmt::Debug;

use knative_operator_runtime::error_text;
use kube::Api;
use kube::api::ListParams;
use serde::de::DeserializeOwned;

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

/// `error`, with the permission that the caller needs: `verb` on `what`.
pub fn explained(error: &kube::Error, verb: &str, what: &str) -> String {
    match error {
        kube::Error::Api(status) if status.code == 403 => {
            format!("{}; you need the permission \"{verb}\" on {what}", error_text(error))
        }
        error => error_text(error),
    }
}
