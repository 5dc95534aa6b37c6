//! Who looks after what: a Lease a shard of the fleet, one shard unless there are several replicas at work. [`share`] decides who takes
//! which (pure), [`lease`] talks to the API server.
//!
//! Every write carries the resourceVersion that was read, so of two candidates one gets a conflict; the age of a
//! record is measured by the own clock from when it was renewed last (as client-go does), so clocks need not agree; who
//! could not renew a Lease in time ends its process.

mod election;
mod lease;
mod share;

pub use lease::{Settings, Told, run};

use knative_operator_shared::api::Knative;
use sha2::{Digest, Sha256};

/// The shard of `resource`, of so many: one cluster is always one replica's.
pub fn shard(resource: &Knative, shards: u32) -> u32 {
    let cluster = resource.common().cluster_profile_ref.as_ref().map(ToString::to_string).unwrap_or_default();
    let hash = Sha256::digest(cluster);
    hash.iter().take(4).fold(0, |all, byte| all << 8 | u32::from(*byte)) % shards.max(1)
}
