//! Fleets: one declaration for many clusters, rolled out in stages.
//!
//! - `decide` decides what to write next, from the state of all clusters ([`decision`]). It is a
//!   state machine without a state of its own: everything that it needs is stored in the children,
//!   in the revisions and in the status, so that a restart changes nothing.
//! - [`member`] is the state of one cluster; [`progress`] is its progress toward a revision, by the
//!   time that [`timer`] observed and the [`outcome`] that is recorded; [`gates`] is what is
//!   measured on it; [`approval`] tells which approvals count.
//! - [`removal`] decides which clusters lose their installation; [`budget`] counts those of a day.
//!
//! All of it is pure.

pub mod absence;
#[cfg(test)]
mod adversary;
pub mod approval;
#[cfg(test)]
mod backup;
#[cfg(test)]
mod backups;
pub mod budget;
#[cfg(test)]
mod bundles;
pub mod child;
mod conditions;
pub mod copy_on_write;
#[cfg(test)]
mod counterexamples;
mod decide;
pub mod decision;
#[cfg(test)]
mod deletions;
#[cfg(test)]
mod exploration;
#[cfg(test)]
mod findings;
#[cfg(test)]
mod gate_cases;
pub mod gates;
pub mod gone;
pub mod history;
mod in_progress;
#[cfg(test)]
mod invariants;
#[cfg(test)]
mod lost_clusters;
mod measured;
pub mod member;
#[cfg(test)]
mod missed_turns;
#[cfg(test)]
mod model;
mod named_removal;
mod next_writes;
pub mod outcome;
pub mod plan;
pub mod plan_steps;
pub mod progress;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod questions;
pub mod removal;
#[cfg(test)]
mod removal_model;
#[cfg(test)]
mod resumed;
#[cfg(test)]
mod returns;
pub mod revision;
mod rollback;
mod rollout;
#[cfg(test)]
mod soak_cases;
mod stages;
pub mod status;
pub mod template;
pub mod timer;
pub mod transitions;
#[cfg(test)]
mod truth;
pub mod unknown;
#[cfg(test)]
mod unknown_clusters;
pub mod unreadable;
pub mod versions;
