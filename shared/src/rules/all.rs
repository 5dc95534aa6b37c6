//! The list of all rules, and the rules with a special role.

use super::rule::Rule;
use super::{
    availability, budgets, certificates, config, deprecated, eventing, fleet, fleet_clusters, fleet_spec,
    fleet_template, ingress, istio, kourier, manifests, meta, names, namespace, parse, patches, pod, probes, protected,
    quantity, reference, registry, target, unreachable, version, workloads,
};

/// All rules, by subject.
pub static ALL: &[&Rule] = &[
    &parse::READABLE,
    &reference::IMMUTABLE,
    &reference::NAME,
    &reference::ANCHOR,
    &target::PROFILE,
    &target::HEALTHY,
    &target::ONE,
    &version::SYNTAX,
    &version::AVAILABLE,
    &version::NEIGHBOUR,
    &version::DOWNGRADE,
    &manifests::URL,
    &manifests::VERSION,
    &manifests::AGREE,
    &registry::KEY,
    &registry::IMAGE,
    &registry::SECRET,
    &availability::REPLICAS,
    &availability::ONE,
    &workloads::NAME,
    &workloads::TWICE,
    &workloads::REPLICAS,
    &quantity::SYNTAX,
    &quantity::LIMIT,
    &meta::LABEL,
    &meta::ANNOTATION,
    &pod::ENV,
    &pod::TOLERATION,
    &pod::AFFINITY,
    &pod::SPREAD,
    &probes::RANGE,
    &budgets::ONE_OF,
    &budgets::VALUE,
    &names::WORKLOAD,
    &names::CONTAINER,
    &names::SERVICE,
    &names::BUDGET,
    &names::CONFIG_MAP,
    &names::CONFIG_KEY,
    &names::IMAGE,
    &names::NO_EFFECT,
    &deprecated::FIELD,
    &ingress::ONE,
    &ingress::CLASS,
    &ingress::CLASS_MISSING,
    &istio::SERVER,
    &kourier::SERVICE,
    &kourier::PORT,
    &config::EXAMPLE,
    &config::KEY,
    &config::VALUE,
    &config::TWICE,
    &patches::CONTENT,
    &patches::TARGET,
    &certificates::CUSTOM,
    &eventing::SELECTION,
    &eventing::BROKER,
    &eventing::BROKER_UNKNOWN,
    &namespace::ONE_MEANING,
    &unreachable::ANNOTATION,
    &protected::DELETION,
    &fleet_spec::PLACEMENT,
    &fleet_spec::SELECTOR,
    &fleet_template::TEMPLATE,
    &fleet_spec::STAGE,
    &fleet_spec::LIMIT,
    &fleet_clusters::NONE,
    &fleet_clusters::EMPTY_STAGE,
    &fleet_clusters::STEPS,
    &fleet::MANAGED,
];

/// Rules that hold even for a terminating resource.
pub static ALWAYS_ENFORCED: [&Rule; 2] = [&reference::IMMUTABLE, &unreachable::ANNOTATION];

/// Rules that a resource must follow to be rendered.
pub static REQUIRED_TO_RENDER: [&Rule; 5] =
    [&reference::ANCHOR, &version::SYNTAX, &quantity::SYNTAX, &namespace::ONE_MEANING, &unreachable::ANNOTATION];

/// Rules that a fleet must follow to be rolled out.
pub static REQUIRED_OF_FLEETS: [&Rule; 6] = [
    &parse::READABLE,
    &fleet_spec::PLACEMENT,
    &fleet_spec::SELECTOR,
    &fleet_template::TEMPLATE,
    &fleet_spec::STAGE,
    &fleet_spec::LIMIT,
];
