//! One actor a custom resource: it waits for something to change, makes one pass, tells what is so, and waits again.
//! Actors share nothing but what [`Context`] holds, so a slow or dead spoke holds up nobody else.
//!
//! [`fleet`] starts and ends actors, [`desired`] is what they are told, [`actor`] is the loop, [`pass`] the steps of one pass, [`resolve`] finds the cluster, [`place`] the namespace on it, [`plans`] what is to be there,
//! [`install`] makes it as it should be, [`finalize`] takes everything away, [`survey`] asks the watches what works, [`missing`] tells what a cluster lacks, [`turns`] are taken by passes, [`verdict`] turns what happened into conditions (pure), [`report`] writes them.

pub mod actor;
pub mod desired;
pub mod events;
pub mod finalize;
pub mod fleet;
pub mod go_operator;
pub mod install;
pub mod missing;
pub mod pass;
pub mod place;
pub mod plans;
pub mod profiles;
pub mod report;
pub mod resolve;
pub mod siblings;
pub mod survey;
pub mod turns;
pub mod verdict;

use std::time::Duration;

use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::cluster::connections::Connections;
use crate::cluster::provider::ProviderFile;
use crate::metrics::Metrics;
use crate::release::Library;
use crate::render::Settings;

/// What all actors share.
pub struct Context {
    /// The cluster that the operator runs in.
    pub hub: Client,
    /// Where releases come from.
    pub library: Library,
    /// Settings that what is installed depends on.
    pub settings: Settings,
    /// The provider file; none if multicluster is disabled.
    pub providers: Option<ProviderFile>,
    /// What was rendered lately.
    pub plans: plans::Plans,
    /// The ClusterProfiles.
    pub profiles: profiles::Profiles,
    /// The connections to spokes.
    pub connections: Connections,
    /// All custom resources.
    pub siblings: siblings::Siblings,
    /// Whether the Go operator still runs beside this one.
    pub go_operator: go_operator::GoOperator,
    /// Where events go.
    pub events: events::Events,
    /// What is counted.
    pub metrics: Metrics,
    /// How old the truth about a cluster may be where no watch can be held.
    pub poll_interval: Duration,
    /// How many shards the fleet has.
    pub shards: u32,
    /// How many passes are made at the same time.
    pub turns: turns::Turns,
    /// Cancelled when the operator is to stop.
    pub stop: CancellationToken,
}
