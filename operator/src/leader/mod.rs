//! Leader election with one Lease per shard of the fleet; one shard by default. [`share`] decides
//! which shards a replica takes (pure), [`lease`] talks to the API server.
//!
//! Every write has the resourceVersion that was read, so one of two candidates gets a conflict. The
//! age of a Lease is measured by the local clock since its last observed renewal (as in client-go),
//! so clocks need not agree. A process that could not renew in time ends, and
//! [`knative_operator_runtime::fence`] stops its writes before another one may start.

mod election;
mod lease;
mod share;

pub use lease::{REQUEST_TIMEOUT, SHARDS as SHARDS_LABEL, Settings, ShardEvent, run};

use knative_operator_shared::api::Knative;
use sha2::{Digest, Sha256};

/// The shard of `resource` out of `shards`; all resources of a cluster have the same.
pub fn shard(resource: &Knative, shards: u32) -> u32 {
    let cluster = resource.common().cluster_profile_ref.as_ref().map(ToString::to_string).unwrap_or_default();
    let hash = Sha256::digest(cluster);
    hash.iter().take(4).fold(0, |all, byte| all << 8 | u32::from(*byte)) % shards.max(1)
}
