//! What clients of API servers need, without Knative: [`tcp`] connects, [`gate`] sends what still
//! may be sent, [`body`] limits responses, [`deadline`] their time, [`backoff`] says when to try
//! again, [`watch`] reads objects, [`inventory`] those of the Cluster Inventory API, [`identity`]
//! has user agent and field manager, and [`error_text`] formats errors.

pub mod backoff;
pub mod body;
pub mod deadline;
pub mod error_text;
pub mod gate;
pub mod identity;
pub mod inventory;
pub mod tcp;
pub mod watch;

pub use error_text::error_text;
