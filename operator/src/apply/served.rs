//! Kinds that were defined a moment ago and are not served yet.

use std::time::{Duration, Instant};

use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::json;

use crate::health::{self, Health};
use crate::object::Kind;

/// How often a write is tried until its kind is served.
const PAUSE: Duration = Duration::from_millis(25);
/// How soon the definition is asked why it isn't, and how long that may take.
const ASK: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(15);

/// Whether `error` says that the kind isn't served, or its storage not there yet.
pub fn is_not_served(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    match status.code {
        404 => status.message.contains("could not find the requested resource") || status.message == "404 page not found",
        429 => status.message.contains("storage is (re)initializing"),
        _ => false,
    }
}

/// Waits a moment for `kind`, which is not served since `since`; the error says why it won't be.
pub async fn wait(client: &Client, kind: &Kind, since: Instant) -> Result<(), String> {
    let (before, name) = (since.elapsed(), format!("{}.{}", kind.resource.plural, kind.resource.group));
    tokio::time::sleep(PAUSE).await;
    let (asked, now) = (before.as_millis() / ASK.as_millis(), since.elapsed());
    if now.as_millis() / ASK.as_millis() == asked && now < LIMIT {
        return Ok(());
    }
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    let Ok(Some(found)) = definitions.get_opt(&name).await else {
        return Err(format!("no matches for kind \"{}\" in version \"{}\"", kind.resource.kind, kind.resource.api_version));
    };
    let mut definition = json!(found);
    definition["kind"] = json!("CustomResourceDefinition");
    match health::of(&definition) {
        Some(Health::Broken(why)) => Err(format!("CustomResourceDefinition {name} is not established: {why}")),
        Some(Health::Waiting(why)) if now >= LIMIT => Err(format!("CustomResourceDefinition {name}: {why} after {} s", LIMIT.as_secs())),
        _ if now >= LIMIT => Err(format!("version {} of {name} is not served after {} s", kind.resource.version, LIMIT.as_secs())),
        _ => Ok(()),
    }
}
