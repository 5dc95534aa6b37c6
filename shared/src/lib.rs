//! What the webhook and the operator agree on, and nothing that talks to anybody.
//!
//! [`api`] holds the custom resources, [`crd`] turns them into CustomResourceDefinitions, [`condition`] and
//! [`reason`] say how a status is told, [`version`] which Knative version follows which, [`rules`] what is
//! refused and why, [`name`] and [`label`] every name that users and other tools know, [`text`]
//! how long a message may be.
//!
//! Invariant: this crate does no I/O and reads neither clock nor environment.

pub mod api;
pub mod condition;
pub mod crd;
pub mod defaults;
pub mod label;
pub mod name;
pub mod reason;
pub mod rules;
pub mod text;
pub mod version;
