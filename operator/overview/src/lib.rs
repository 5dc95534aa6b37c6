//! The state of a hub as a whole, for `status`, `wait` and `ui`: computed from the hub's objects
//! only, with the rights of the user. The operator itself has from here what it writes for people
//! who look with other tools: the condition [`stalled`], the missing dependency that explains
//! [`rejections`], and why a cluster is [`unresolved`].

pub mod activity;
pub mod advice;
pub mod attention_remedy;
pub mod build;
pub mod component;
pub mod events;
pub mod fleet_remedy;
pub mod follow;
mod foreign;
pub mod model;
pub mod names;
pub mod parsed;
pub mod preflight_remedy;
pub mod properties;
pub mod rejections;
pub mod remedy;
pub mod remedy_row;
pub mod snapshot;
pub mod stalled;
pub mod unresolved;
pub mod watched;
pub mod workload_remedy;

pub use advice::Advice;
pub use build::overview;
pub use model::{ClusterView, ComponentView, FleetView, Overview, StageView, State};
pub use names::Names;
pub use remedy::advice_for_attention;
pub use snapshot::{Snapshot, Watched};
pub use unresolved::Unresolved;
