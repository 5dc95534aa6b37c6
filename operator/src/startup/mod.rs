//! What the operator does on the hub when it starts, besides managing custom resources.

pub mod catalog;
pub mod conversion;
pub mod go_operator;
pub mod hub_identity;
pub mod other_release;
pub mod suspension;
