//! Reads KnativeFleets from the API server at the time of a review: what an informer has reported
//! may be old.

use std::time::Duration;

use knative_operator_runtime::error_text;
use knative_operator_shared::api::KnativeFleet;
use knative_operator_shared::label::{FLEET_VERSION, GROUP};
use knative_operator_shared::rules::{self, Violation};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::json;

use crate::approval::{CURRENT, UNAVAILABLE};
use crate::lifetime::missing_owner;

/// Time limit of a request. The API server waits 5 s for the webhook.
const TIMEOUT: Duration = Duration::from_secs(2);

/// Reads KnativeFleets.
#[derive(Clone)]
pub struct StoredFleets(Option<Client>);

impl StoredFleets {
    /// Reads them with `client`.
    pub fn new(client: Client) -> Self {
        Self(Some(client))
    }

    /// There is no API server.
    #[cfg(test)]
    pub fn none() -> Self {
        Self(None)
    }

    /// The fleet called `name` in `namespace`.
    ///
    /// # Errors
    ///
    /// The violation of an approval whose fleet does not exist or can't be read.
    pub async fn get(&self, namespace: &str, name: &str) -> Result<KnativeFleet, Violation> {
        let missing = || {
            let message = format!("KnativeFleet {namespace}/{name} does not exist");
            CURRENT.at("spec.fleet", message, "name a KnativeFleet in the namespace of the approval")
        };
        let unavailable = |why: &str| {
            UNAVAILABLE.at("spec.fleet", format!("cannot read KnativeFleet {namespace}/{name}: {why}"), "try again")
        };
        if !is_name(name) {
            return Err(missing());
        }
        match self.read(namespace, name).await {
            Ok(Some(fleet)) => rules::parse_fleet(&json!(fleet)),
            Ok(None) => Err(missing()),
            Err(why) => Err(unavailable(&why)),
        }
    }

    /// The violation if the fleet called `name` in `namespace` doesn't exist with `uid`, or can't
    /// be read.
    pub async fn check_owner(&self, namespace: &str, name: &str, uid: &str) -> Option<Violation> {
        let found = if is_name(name) { self.read(namespace, name).await } else { Ok(None) };
        match found {
            Ok(Some(fleet)) if fleet.metadata.uid.as_deref() == Some(uid) => None,
            Ok(_) => Some(missing_owner(name, uid)),
            Err(why) => Some(UNAVAILABLE.at(
                "metadata.ownerReferences",
                format!("cannot read KnativeFleet {namespace}/{name}: {why}"),
                "try again",
            )),
        }
    }

    async fn read(&self, namespace: &str, name: &str) -> Result<Option<DynamicObject>, String> {
        let Some(client) = &self.0 else { return Err("there is no API server".to_owned()) };
        let gvk = GroupVersionKind::gvk(GROUP, FLEET_VERSION, "KnativeFleet");
        let resource = ApiResource::from_gvk_with_plural(&gvk, "knativefleets");
        let fleets = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource);
        match tokio::time::timeout(TIMEOUT, fleets.get_opt(name)).await {
            Ok(found) => found.map_err(|error| error_text(&error)),
            Err(_) => Err("the API server did not answer".to_owned()),
        }
    }
}

/// Whether `name` is one of an object, and no path.
fn is_name(name: &str) -> bool {
    !name.starts_with('.')
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_is_no_name() {
        assert!(is_name("prod") && is_name("prod.eu-1"));
        for path in ["a/b", "../secrets/a", "..", "a?b", "a%2fb", "A", "a b", "ä"] {
            assert!(!is_name(path), "{path}");
        }
    }
}
