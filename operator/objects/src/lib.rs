//! What an object is: its identity, kind and digest, its owner, its compact form, its health; and
//! why a workload is not available ([`cause`]), from its Pods.

mod applied_version;
pub mod cause;
pub mod compact;
mod digest;
pub mod drain;
pub mod foreign_text;
pub mod health;
mod identity;
mod installation_owner;
mod kind;
pub mod kinds;
pub mod owner;
pub mod plan;
pub mod pod;
pub mod pod_cause;
mod resource_key;

pub use applied_version::AppliedVersion;
pub use compact::CompactObject;
pub use digest::Digest;
pub use identity::{Id, ObjectId, gvk, text, version};
pub use installation_owner::{Hub, InstallationOwner};
pub use kind::Kind;
pub use kinds::Kinds;
pub use owner::Owner;
pub use resource_key::ResourceKey;
