//! Objects of the fixture, of any kind, written and deleted without kubectl. What a user applies is
//! in [`super::apply`].

use kube::Api;
use kube::api::{DeleteParams, DynamicObject, Patch, PatchParams};
use kube::core::ApiResource;
use serde_json::{Value, json};

use super::Cluster;
use super::objects::{self, GONE, text};
use crate::waits::timed;
use crate::{Result, wait};

impl Cluster {
    /// Applies `object`, or each item of a List, as the user of [`Cluster::kubeconfig`].
    pub async fn put(&self, object: &Value) -> Result<()> {
        timed("apply", self.put_all(object)).await
    }

    /// Creates the namespace `name` if it does not exist.
    pub async fn namespace(&self, name: &str) -> Result<()> {
        self.put(&json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})).await
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
        // With its definition, an object goes without an event of its own.
        match objects::discovered(&self.client, object).await.map(|resource| self.api_of(object, &resource)) {
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

    async fn put_one(&self, object: &Value) -> Result<()> {
        let (api, name) = self.api(object).await?;
        let params = PatchParams::apply("kubectl").force().validation_strict();
        let written = api.patch(&name, &params, &Patch::Apply(object)).await;
        written.map(drop).map_err(|error| format!("{} {name}: {error}", object["kind"]).into())
    }

    /// The API of `object`, and its name.
    async fn api(&self, object: &Value) -> Result<(Api<DynamicObject>, String)> {
        let resource = objects::resource(&self.client, object).await?;
        Ok(self.api_of(object, &resource))
    }

    fn api_of(&self, object: &Value, (kind, is_namespaced): &(ApiResource, bool)) -> (Api<DynamicObject>, String) {
        let api = if *is_namespaced {
            Api::namespaced_with(self.client(), text(object, "/metadata/namespace"), kind)
        } else {
            Api::all_with(self.client(), kind)
        };
        (api, text(object, "/metadata/name").to_owned())
    }
}
