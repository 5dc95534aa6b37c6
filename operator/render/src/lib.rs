//! Renders a spec and a release into objects. Pure: equal inputs give an equal plan, and no I/O
//! happens.
//!
//! [`TRANSFORMS`] lists the steps in order; each is one small file.

mod aggregation;
mod autoscaling;
mod availability;
mod broker;
mod budgets;
mod certificates;
mod config;
mod context;
mod dedupe;
mod definition;
mod empty;
mod error;
mod guard;
mod image_places;
mod images;
mod istio;
mod istio_gateway;
mod jobs;
mod kourier;
mod label;
mod min_version;
mod names;
mod namespace;
mod owner;
mod patches;
mod pod;
mod probes;
#[cfg(test)]
mod properties;
mod replicas;
mod resources;
mod services;
mod shape;
mod sink_binding;
mod tls;
mod workloads;

use knative_operator_shared::api::Knative;
use knative_operator_shared::version::Version;
use serde_json::Value;

use context::Context;
use knative_operator_objects::plan::Rendered;
use knative_operator_objects::{CompactObject, Kinds, ObjectId};

pub use context::Settings;
pub use error::{RenderError, TransformError};
pub use image_places::{ImagePlace, ImageSetting, image_places, image_variables};
pub use names::{names, release_names};
pub use namespace::apply_namespace_settings;

/// Changes one object of the release.
type Transform = fn(&mut Value, &Context<'_>) -> Result<(), TransformError>;

/// All transforms, in order.
const TRANSFORMS: &[Transform] = &[
    shape::check,
    namespace::set_namespace,
    namespace::configure_namespace,
    availability::replicas,
    images::replace,
    jobs::set_name,
    config::set_entries,
    min_version::set_min_version,
    workloads::apply_defaults,
    resources::set_by_container,
    workloads::apply_overrides,
    services::replace,
    budgets::replace,
    aggregation::remove_rules,
    owner::clear,
    certificates::mount,
    broker::default_class,
    sink_binding::set_selection_mode,
    label::set,
    istio_gateway::replace,
    kourier::set_gateway_namespace,
    kourier::set_bootstrap_namespace,
    kourier::configure_service,
    kourier::set_bootstrap_configmap,
    istio::move_local_gateway,
    istio::set_selector,
    guard::allow_podinfo,
    empty::normalize,
];

/// Renders `resource` from `released`, the objects of its release, and removes duplicates. The
/// result depends on the spec (without the ClusterProfile reference) and the namespace only, so
/// that equal resources can share it.
pub fn objects<'o>(
    resource: &Knative,
    version: &Version,
    released: impl Iterator<Item = &'o CompactObject> + Clone,
    settings: &Settings,
) -> Result<Rendered, RenderError> {
    let kinds = Kinds::defined(released.clone());
    let context = Context { resource, version, namespace: resource.target_namespace(), kinds: &kinds, settings };
    let wanted = released.filter(|o| tls::is_wanted(o, &context));
    let objects = wanted.map(|object| apply_transforms(object, &context)).collect::<Result<_, _>>()?;
    let objects = replicas::leave_to_autoscalers(dedupe::deduplicate(objects));
    let patched = patches::apply(objects, &context).map_err(RenderError::Patch)?;
    Ok(Rendered::new(patched.objects).with_exceptions(patched.unowned, patched.unlabeled))
}

/// `released` after all transforms.
fn apply_transforms(released: &CompactObject, cx: &Context<'_>) -> Result<CompactObject, RenderError> {
    if definition::is_unchanged(released, cx) {
        return Ok(released.clone());
    }
    let mut object = released.parse();
    for transform in TRANSFORMS {
        transform(&mut object, cx)
            .map_err(|why| RenderError::Transform { object: ObjectId::of(&object).to_string(), why })?;
    }
    Ok(CompactObject::new(&object))
}
