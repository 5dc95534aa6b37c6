//! The smallest ClusterRole with which the credential of a spoke can install, repair, upgrade and
//! remove what resources ask for. Pure.
//!
//! It has what the operator does itself ([`requests`]) and what the roles of the installation grant
//! ([`grants`]), because an API server lets nobody create a role that permits more than its author
//! may do. [`permissions`] turns both into few rules, and [`role`] into the object. [`comparison`]
//! finds what an account lacks.

mod comparison;
mod grants;
mod permissions;
mod requests;
mod role;

pub use comparison::missing;
pub use role::{Covered, cluster_role};
