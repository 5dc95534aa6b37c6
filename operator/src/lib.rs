//! The Knative operator: installs what `KnativeServing` and `KnativeEventing` ask for, on its own
//! cluster or on spokes, and repairs drift. `docs/develop/architecture.md` has the map.

pub mod command;
mod controller;
pub mod fleet_metrics;
mod images;
mod leader;
mod metrics;
mod spoke_role;
mod startup;

pub use controller::conditions;
