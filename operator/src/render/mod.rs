//! From a spec and a release to the exact objects. Pure: the same inputs give the same plan, and nothing is read.
//!
//! [`TRANSFORMS`] is the whole story, in order; each is one small file.

mod aggregation;
mod broker;
mod config;
mod dedupe;
mod empty;
mod fields;
mod istio;
mod jobs;
mod kourier;
mod label;
mod namespace;
#[cfg(test)]
mod oracle;
mod owner;
mod replicas;
mod sink_binding;
mod tls;

use knative_operator_shared::api::Knative;
use knative_operator_shared::version::Version;
use serde_json::Value;

use crate::kinds::Kinds;
use crate::object::{ObjectId, text};
use crate::plan::Plan;

pub use fields::unsupported;
pub use namespace::settle as settle_namespace;
pub use owner::Owner;

/// What a transform may know.
pub struct Context<'a> {
    /// The custom resource.
    pub resource: &'a Knative,
    /// The version that is installed.
    pub version: &'a Version,
    /// The namespace that everything lives in.
    pub namespace: &'a str,
    /// Who owns the objects.
    pub owner: &'a Owner,
    /// The kinds that the release itself defines.
    pub kinds: &'a Kinds,
}

/// Changes one object of the release; the error says what of the spec doesn't fit.
type Transform = fn(&mut Value, &Context<'_>) -> Result<(), String>;

/// Every transform, in order.
const TRANSFORMS: &[Transform] = &[
    namespace::inject,
    namespace::configure,
    jobs::name,
    config::merge,
    aggregation::leave_rules,
    owner::set,
    broker::default_class,
    sink_binding::selection_mode,
    label::set,
    kourier::gateway_namespace,
    kourier::bootstrap,
    kourier::service,
    kourier::bootstrap_configmap,
    istio::local_gateway,
    empty::values,
];

/// Why a spec can't be rendered.
#[derive(Debug, thiserror::Error)]
#[error("{object}: {why}")]
pub struct RenderError {
    object: String,
    why: String,
}

/// The plan for `resource`: `objects` of its release, transformed, each once.
pub fn plan(resource: &Knative, version: &Version, objects: Vec<Value>, owner: &Owner) -> Result<Plan, RenderError> {
    let mut kinds = Kinds::default();
    for crd in objects.iter().filter(|o| text(o, "/kind") == "CustomResourceDefinition") {
        kinds.learn(crd);
    }
    let context = Context { resource, version, namespace: resource.target_namespace(), owner, kinds: &kinds };
    let mut objects = tls::without_optional(objects, &context);
    for object in &mut objects {
        for transform in TRANSFORMS {
            transform(object, &context).map_err(|why| RenderError { object: ObjectId::of(object).to_string(), why })?;
        }
    }
    let mut objects = dedupe::once(objects);
    replicas::leave_to_autoscalers(&mut objects);
    Ok(Plan::new(objects))
}
