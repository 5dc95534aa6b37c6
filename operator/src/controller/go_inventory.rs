//! The inventory of an installation of the Go operator, which keeps none.

use knative_operator_shared::api::Knative;
use knative_operator_shared::version::Version;

use super::context::Context;
use knative_operator_apply::inventory::Inventory;
use knative_operator_objects::Owner;
use knative_operator_objects::plan::Plan;
use knative_operator_release::ReleaseError;

/// Why the objects of the Go operator are not known.
#[derive(Debug, thiserror::Error)]
pub enum GoInventoryError {
    /// A file can't be read now.
    #[error("cannot list the objects of the Go operator: {0}")]
    Unread(String),
    /// The version is no longer available, or doesn't fit the spec.
    #[error("cannot list the objects of the Go operator: {0}")]
    Unavailable(String),
}

/// Objects that the Go operator installed: those of the version in the status, since it keeps no
/// inventory.
pub async fn go_operator_inventory(cx: &Context, resource: &Knative) -> Result<Inventory, GoInventoryError> {
    let unavailable = GoInventoryError::Unavailable;
    let Some(version) = resource.status().and_then(|s| s.version.as_deref()) else { return Ok(Inventory::default()) };
    let version: Version =
        version.parse().map_err(|_| unavailable(format!("status.version {version} is not a version")))?;
    let release = cx.library.release(resource, &version).await.map_err(|error| match &error {
        ReleaseError::File { .. } => GoInventoryError::Unread(error.to_string()),
        _ => unavailable(error.to_string()),
    })?;
    let rendered = cx.rendered.get(resource, &version, &release, &cx.settings).await;
    let mut inventory = Inventory::default();
    let plan = Plan::new(rendered.map_err(|e| unavailable(e.to_string()))?, &Owner::of(resource, ""));
    inventory.add(plan.items().iter());
    Ok(inventory)
}

/// The inventory that a new anchor gets.
pub struct Intended {
    /// The objects to apply, and those of another version that the Go operator installed, which are
    /// pruned.
    inventory: Inventory,
    /// Why the latter are not known.
    unknown: Option<GoInventoryError>,
}

impl Intended {
    /// That of `resource`, for the objects of `plan` in `version`.
    pub async fn find(cx: &Context, resource: &Knative, plan: &Plan, version: &Version) -> Self {
        let installed = resource.status().and_then(|status| status.version.as_deref());
        let (mut inventory, mut unknown) = (Inventory::default(), None);
        if installed.is_some_and(|installed| installed != version.to_string()) {
            match go_operator_inventory(cx, resource).await {
                Ok(found) => inventory = found,
                Err(error) => unknown = Some(error),
            }
        }
        inventory.add(plan.items().iter());
        Self { inventory, unknown }
    }

    /// The inventory, which is about to be stored for `resource`. Objects of a version that is no
    /// longer available are left, which an event says. Fails if they may be known later.
    pub fn get(&self, cx: &Context, resource: &Knative) -> Result<&Inventory, &GoInventoryError> {
        match &self.unknown {
            None => {}
            Some(error @ GoInventoryError::Unread(_)) => return Err(error),
            Some(error @ GoInventoryError::Unavailable(_)) => {
                let note = format!("Objects that only the version before has are left: {error}");
                cx.events.warning(resource, "ObjectsLeft", note);
            }
        }
        Ok(&self.inventory)
    }
}
