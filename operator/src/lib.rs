//! The Knative operator: installs what `KnativeServing` and `KnativeEventing` ask for, on its own
//! cluster or on spokes, and repairs drift. `docs/develop/architecture.md` has the map.

mod controller;
mod diagnostics;
pub mod fleet_metrics;
mod lasting_counter;
mod leader;
mod metrics;
mod run;
mod startup;

pub use controller::conditions;
pub use run::run;
