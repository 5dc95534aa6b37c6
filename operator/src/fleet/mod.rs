//! Fleets: one declaration for many clusters, rolled out in stages.
//!
//! - `decide` decides what to write next, from the state of all clusters ([`decision`]). It is a
//!   state machine without a state of its own: everything that it needs is stored in the children,
//!   in the revisions and in the status, so that a restart changes nothing.
//! - [`member`] is the state of one cluster, and its [`member::Progress`] toward a revision;
//!   [`walk`] has the steps between minor versions; [`approval`] tells which approvals count.
//!
//! All of it is pure.

pub mod approval;
pub mod child;
mod decide;
pub mod decision;
pub mod member;
#[cfg(test)]
mod missed_turns;
pub mod plan;
#[cfg(test)]
mod properties;
pub mod removal;
pub mod revision;
mod rollback;
mod rollout;
pub mod status;
pub mod template;
pub mod transitions;
pub mod walk;
