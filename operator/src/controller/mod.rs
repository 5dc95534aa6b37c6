//! One actor per custom resource: it waits for a change, reconciles, publishes the status, and
//! waits again. Actors share only the [`context::Context`], so a slow or unreachable spoke doesn't
//! delay the others.
//!
//! - [`supervisor`] starts and stops [`actors`]; [`desired`] is their input, [`actor`] their loop,
//!   [`state`] what they keep.
//! - [`reconcile`] is one reconcile: [`resolve`] finds the target cluster, [`namespace`] the
//!   namespace on it, [`selection`] selects the version, unless what is [`recorded`] on the cluster
//!   is another one, [`install`] makes the cluster equal to the spec in five steps
//!   ([`installation`] is the last), [`finalize`] deletes everything that is [`installed`]
//!   ([`uninstall`]: in steps; [`deletion_error`]: why it can't; [`draining`]: how long that takes;
//!   [`finalizers`]; [`unlabeled`]: what shows less), or [`orphan`] leaves it, or the cluster is
//!   [`unreachable`], or has [`moved`], where somebody may have a [`used_namespace`];
//!   [`owner`] sees to it that an installation has one owner, and [`author`] that somebody asked
//!   who may; [`go_inventory`] is that of the Go operator.
//! - [`readiness`] describes what was found, [`causes`] asks Pods for more, [`conditions`] turns it
//!   into conditions (pure), [`outcome`] adds when to reconcile again, [`status`] publishes it;
//!   [`announce`], [`events`] and [`apply_events`] publish events.
//! - [`registry`] has all custom resources, [`render_cache`] rendered objects, [`concurrency`] the
//!   permits for reconciles.

mod actor;
mod actors;
mod announce;
mod apply_events;
pub mod author;
mod causes;
pub mod concurrency;
pub mod conditions;
pub mod context;
mod deletion_error;
mod desired;
mod draining;
pub mod events;
mod finalize;
mod finalizers;
pub mod fleets;
mod go_inventory;
pub mod hub_changes;
mod install;
mod installation;
mod installed;
mod moved;
mod namespace;
mod orphan;
mod outcome;
mod owner;
mod owning_fleet;
mod readiness;
mod reconcile;
mod recorded;
pub mod registry;
pub mod render_cache;
pub mod resolve;
mod selection;
mod state;
pub mod status;
pub mod supervisor;
mod uninstall;
mod unlabeled;
mod unreachable;
mod used_namespace;
mod waited;
mod warnings;
