//! Validation of the custom resources. Each rule is a pure function with an identifier. The
//! webhook, the operator and `knative-operator lint` use the same rules, so that they always agree.
//!
//! [`authorization`] has the permissions that a write needs, [`customize`] what users may set
//! without one.
//!
//! Invariant: this crate does no I/O and reads neither the clock nor the environment.

mod all;
pub mod authorization;
mod availability;
mod budgets;
mod certificates;
mod config;
mod config_values;
mod context;
pub mod customize;
mod deletion;
mod deprecated;
mod eventing;
mod fleet;
mod fleet_clusters;
mod fleet_gate;
mod fleet_selector;
mod fleet_spec;
mod fleet_template;
mod ingress;
mod istio;
mod kourier;
mod managed;
mod manifests;
mod meta;
mod names;
mod namespace;
mod parse;
mod patches;
mod pod;
mod probes;
mod protected;
mod quantity;
mod reference;
mod registry;
mod rule;
mod target;
mod validate;
mod version;
mod violations;
mod workloads;

pub use all::{ALL, ALWAYS_ENFORCED, REQUIRED_OF_FLEETS, REQUIRED_TO_RENDER};
pub use context::{
    Catalog, Container, FleetContext, GUARD, Identities, Profile, ReleaseNames, RuleContext, VERSION_PLACEHOLDER,
    Workload,
};
pub use fleet::{parse_fleet, validate_fleet, validate_fleet_change, validate_fleet_deletion, validate_fleet_metadata};
pub use ingress::unused_ingress;
pub use names::{autoscaler_of, short};
pub use parse::{READABLE, drop_nulls, has_nulls, parse, parse_partially};
pub use patches::violation as patch_violation;
pub use protected::{is_protected, validate_deletion};
pub use rule::{Example, Rule, Severity, Violation};
pub use target::ONE as ONE_TARGET;
pub use validate::{ANNOTATIONS, validate, validate_change};
pub use violations::remove_existing;

#[cfg(test)]
mod tests;
