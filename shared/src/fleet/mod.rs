//! Fleets: the parts that both the rules and the operator need.

pub mod content;
pub mod deletion;
pub mod overrides;
pub mod placement;
pub mod placement_error;
pub mod selector;
pub mod stage;
