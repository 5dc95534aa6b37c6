//! From a spec and a release to the exact objects. Pure: the same inputs give the same plan, and nothing is read.
//!
//! [`TRANSFORMS`] is the whole story, in order; each is one small file.

mod aggregation;
mod autoscaling;
mod availability;
mod broker;
mod budgets;
mod certificates;
mod config;
mod dedupe;
mod definition;
mod empty;
mod guard;
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

use crate::kinds::Kinds;
use crate::object::ObjectId;
use crate::packed::Packed;
use crate::plan::Rendered;

pub use names::names;
pub use namespace::settle as settle_namespace;

/// Settings of the operator itself that what it installs depends on.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// The oldest Kubernetes that Knative is to agree to run on, such as `v1.34.0`.
    pub kubernetes_min_version: Option<String>,
}

/// What a transform may know.
pub struct Context<'a> {
    /// The custom resource.
    pub resource: &'a Knative,
    /// The version that is installed.
    pub version: &'a Version,
    /// The namespace that everything lives in.
    pub namespace: &'a str,
    /// The kinds that the release itself defines.
    pub kinds: &'a Kinds,
    /// Settings of the operator.
    pub settings: &'a Settings,
}

/// Changes one object of the release; the error says what of the spec doesn't fit.
type Transform = fn(&mut Value, &Context<'_>) -> Result<(), String>;

/// Every transform, in order.
const TRANSFORMS: &[Transform] = &[
    shape::check,
    namespace::inject,
    namespace::configure,
    availability::replicas,
    images::replace,
    jobs::name,
    config::merge,
    min_version::hand_on,
    resources::by_container,
    workloads::replace,
    services::replace,
    budgets::replace,
    aggregation::leave_rules,
    owner::clear,
    certificates::mount,
    broker::default_class,
    sink_binding::selection_mode,
    label::set,
    istio_gateway::replace,
    kourier::gateway_namespace,
    kourier::bootstrap,
    kourier::service,
    kourier::bootstrap_configmap,
    istio::local_gateway,
    istio::select,
    guard::allow_podinfo,
    empty::values,
];

/// Why a spec can't be rendered.
#[derive(Debug, thiserror::Error)]
#[error("{object}: {why}")]
pub struct RenderError {
    object: String,
    why: String,
}

/// What `resource` asks for: `released`, the objects of its release, transformed, each once. It depends on the spec (the reference to a
/// cluster left out) and on the namespace that it is installed in, and on nothing else of the resource: those with the same may share it.
pub fn objects<'o>(
    resource: &Knative,
    version: &Version,
    released: impl Iterator<Item = &'o Packed> + Clone,
    settings: &Settings,
) -> Result<Rendered, RenderError> {
    let kinds = Kinds::defined(released.clone());
    let context = Context { resource, version, namespace: resource.target_namespace(), kinds: &kinds, settings };
    let wanted = released.filter(|o| tls::wanted(o, &context));
    let objects = wanted.map(|object| transformed(object, &context)).collect::<Result<_, _>>()?;
    Ok(Rendered::new(replicas::leave_to_autoscalers(dedupe::once(objects))))
}

/// `released` after every transform.
fn transformed(released: &Packed, cx: &Context<'_>) -> Result<Packed, RenderError> {
    if definition::is_right(released, cx) {
        return Ok(released.clone());
    }
    let mut object = released.open();
    for transform in TRANSFORMS {
        transform(&mut object, cx).map_err(|why| RenderError { object: ObjectId::of(&object).to_string(), why })?;
    }
    Ok(Packed::new(&object))
}
