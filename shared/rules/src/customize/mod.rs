//! What a user may set without the permission `customize`: an allowlist. [`FIELDS`] and
//! [`config_maps`] list each field with a reason. A field that they don't list needs the
//! permission, too, so nothing new is allowed by accident. [`changes`] and [`fleet_changes`] find
//! what a request changes and needs the permission: what it removes counts like what it sets.

mod both;
mod compare;
mod entry;
mod eventing;
mod fields;
mod fleet;
mod serving;
mod table;

pub use compare::changes;
pub use entry::{ConfigMap, Entry, Needs};
pub use fields::FIELDS;
pub use fleet::fleet_changes;
pub use table::{config_maps, setting};

#[cfg(test)]
mod tests;
