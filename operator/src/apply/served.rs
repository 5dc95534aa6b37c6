//! Kinds that were defined a moment ago and are not served yet.

use std::time::{Duration, Instant};

use kube::core::{ApiResource, GroupVersionKind, Status};
use kube::{Api, Client};

use super::engine::Target;
use crate::health::{self, Health, Watched};
use crate::object::Kind;

/// How long whatever needs a kind rests, at least, until that is served.
pub const PAUSE: Duration = Duration::from_millis(100);
/// How often a definition is looked at until it is established.
const LOOK: Duration = Duration::from_millis(50);
/// How soon the definition is asked why it isn't, and how long that may take.
const ASK: Duration = Duration::from_secs(1);
const LIMIT: Duration = Duration::from_secs(5);

/// Whether `error` says that the kind isn't served, or its storage not there yet.
pub fn is_not_served(error: &kube::Error) -> bool {
    let kube::Error::Api(status) = error else { return false };
    match status.code {
        404 => {
            status.message.contains("could not find the requested resource") || status.message == "404 page not found"
        }
        _ => is_initializing(status),
    }
}

/// Whether `status` says that the storage of a kind is not there yet: it is in a moment.
pub fn is_initializing(status: &Status) -> bool {
    status.code == 429 && status.message.contains("storage is (re)initializing")
}

/// Waits until the definition of `kind` is established, if the plan has it; the error says why it won't be.
pub async fn established(target: &Target<'_>, kind: &Kind) -> Result<(), String> {
    let Some(definition) = target.plan.definition(kind) else { return Ok(()) };
    let started = Instant::now();
    loop {
        match target.seen.health(&definition.id) {
            // Why is told of the definition itself.
            Some(Health::Broken(_)) => return Err(format!("its {} is not established", definition.id)),
            None if target.is_refused(definition) => {
                return Err(format!("{} is not there, because it was refused", definition.id));
            }
            Some(Health::Waiting(_)) | None if started.elapsed() < LIMIT => tokio::time::sleep(LOOK).await,
            Some(Health::Waiting(wait)) => return Err(format!("{}: {wait}", definition.id)),
            Some(Health::Ready) | None => break,
        }
    }
    // What was established this moment is served in the next one.
    if started.elapsed() >= LOOK {
        tokio::time::sleep(PAUSE).await;
    }
    Ok(())
}

/// Waits a moment for `kind`, which is not served since `since`; the error says why it won't be.
pub async fn wait(client: &Client, kind: &Kind, since: Instant) -> Result<(), String> {
    let (before, name) = (since.elapsed(), format!("{}.{}", kind.resource.plural, kind.resource.group));
    // Twice as long each time.
    tokio::time::sleep(before.clamp(PAUSE, ASK / 2)).await;
    let (asked, now) = (before.as_millis() / ASK.as_millis(), since.elapsed());
    if now.as_millis() / ASK.as_millis() == asked && now < LIMIT {
        return Ok(());
    }
    let gvk = GroupVersionKind::gvk("apiextensions.k8s.io", "v1", "CustomResourceDefinition");
    let definitions: Api<Watched> = Api::all_with(client.clone(), &ApiResource::from_gvk(&gvk));
    let Ok(Some(found)) = definitions.get_opt(&name).await else {
        return Err(format!(
            "no matches for kind \"{}\" in version \"{}\"",
            kind.resource.kind, kind.resource.api_version
        ));
    };
    match health::of("CustomResourceDefinition", &found) {
        Some(Health::Broken(why)) => Err(format!("CustomResourceDefinition {name} is not established: {why}")),
        Some(Health::Waiting(wait)) if now >= LIMIT => Err(format!("CustomResourceDefinition {name}: {wait}")),
        _ if now >= LIMIT => {
            Err(format!("version {} of {name} is not served after {} s", kind.resource.version, LIMIT.as_secs()))
        }
        _ => Ok(()),
    }
}
