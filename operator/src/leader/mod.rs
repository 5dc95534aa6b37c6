//! Leader election by Lease: [`election`] decides (pure), [`lease`] talks to the API server.
//!
//! Every write carries the resourceVersion that was read, so of two candidates one gets a conflict; the age of a
//! record is measured by the own clock from when it changed last (as client-go does), so clocks need not agree; who
//! has lost the Lease ends its process.

mod election;
mod lease;

pub use lease::{Settings, acquire};
