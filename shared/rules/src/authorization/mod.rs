//! What a user needs permission for: [`mod@write`] is the creation or the change of a resource,
//! [`questions`] and [`approvals`] find what it needs, [`permission`] is what a user may have. The
//! webhook asks about requests, `knative-operator audit` about stored resources, and the operator
//! about the [`author`] of a resource that begins to install.

pub mod approvals;
pub mod author;
pub mod fleet_users;
mod gates;
pub mod permission;
pub mod questions;
pub mod write;
