//! Objects of the fixture, written and deleted without kubectl: starting it costs more than the
//! request.

use std::time::Duration;

use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::GroupVersionKind;
use kube::{Api, discovery};
use serde_json::{Value, json};

use super::Cluster;
use crate::waits::timed;
use crate::{Result, wait};

/// Time limit until a deleted object is gone.
const GONE: Duration = Duration::from_secs(120);

impl Cluster {
    /// Applies `object`, or each item of a List, as the user of [`Cluster::kubeconfig`].
    pub async fn put(&self, object: &Value) -> Result<()> {
        timed("apply", self.put_all(object)).await
    }

    /// Deletes `object` and waits until it is gone. Returns whether it existed.
    pub async fn remove(&self, object: &Value) -> Result<bool> {
        let (api, name) = self.api(object).await?;
        match api.delete(&name, &DeleteParams::background()).await {
            Err(kube::Error::Api(error)) if error.code == 404 => Ok(false),
            Err(error) => Err(format!("{} {name}: {error}", object["kind"]).into()),
            Ok(_) => self.gone(object).await.map(|()| true),
        }
    }

    /// Waits until `object` is gone, or its definition.
    pub async fn gone(&self, object: &Value) -> Result<()> {
        let is_undefined = |error: &crate::Error| match error.downcast_ref() {
            Some(kube::Error::Api(error)) => error.code == 404,
            Some(kube::Error::Discovery(_)) => true,
            _ => false,
        };
        match self.api(object).await {
            Ok((api, name)) => wait::until(&api, &name, GONE, "gone", |found| found.is_none()).await.map(drop),
            Err(error) if is_undefined(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn put_all(&self, object: &Value) -> Result<()> {
        match object["items"].as_array() {
            Some(items) => {
                for item in items {
                    self.put_one(item).await?;
                }
                Ok(())
            }
            None => self.put_one(object).await,
        }
    }

    /// Changes the status of `object`, which exists, to what it has.
    pub async fn merge_status(&self, object: &Value) -> Result<()> {
        let (api, name) = self.api(object).await?;
        let patch = Patch::Merge(json!({"status": object["status"]}));
        let changed = api.patch_status(&name, &PatchParams::default(), &patch).await;
        changed.map(drop).map_err(|error| format!("status of {name}: {error}").into())
    }

    async fn put_one(&self, object: &Value) -> Result<()> {
        let (api, name) = self.api(object).await?;
        let params = PatchParams::apply("kubectl").force().validation_strict();
        let written = api.patch(&name, &params, &Patch::Apply(object)).await;
        written.map(drop).map_err(|error| format!("{} {name}: {error}", object["kind"]).into())
    }

    /// The API of `object`, and its name.
    async fn api(&self, object: &Value) -> Result<(Api<DynamicObject>, String)> {
        let text = |pointer: &str| object.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
        let (group, version) = text("/apiVersion").split_once('/').unwrap_or(("", text("/apiVersion")));
        let gvk = GroupVersionKind::gvk(group, version, text("/kind"));
        let (kind, capabilities) = discovery::pinned_kind(&self.client, &gvk).await?;
        let api = match capabilities.scope {
            discovery::Scope::Namespaced => Api::namespaced_with(self.client(), text("/metadata/namespace"), &kind),
            discovery::Scope::Cluster => Api::all_with(self.client(), &kind),
        };
        Ok((api, text("/metadata/name").to_owned()))
    }
}
