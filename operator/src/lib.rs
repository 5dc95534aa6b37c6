//! The Knative operator: installs what `KnativeServing` and `KnativeEventing` ask for, on its own
//! cluster or on spokes, and repairs drift. `docs/develop/architecture.md` has the map.

mod apply;
mod backoff;
mod cluster;
pub mod command;
mod controller;
pub mod fleet;
pub mod fleet_metrics;
mod leader;
mod metrics;
pub mod object;
pub mod overview;
pub mod release;
pub mod render;
mod spoke_role;
mod startup;
