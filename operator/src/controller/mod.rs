//! One actor a custom resource: it waits for something to change, makes one pass, tells what is so, and waits again.
//! Actors share nothing but what [`Context`] holds, so a slow or dead spoke holds up nobody else.
//!
//! [`fleet`] starts and ends actors, [`actor`] is the loop, [`pass`] the steps of one pass, [`resolve`] finds the cluster, [`place`] the namespace on it, [`plans`] what is to be there,
//! [`install`] makes it as it should be, [`finalize`] takes everything away, [`survey`] asks the watches what works, [`verdict`] turns what happened into conditions (pure), [`report`] writes them.

pub mod actor;
pub mod events;
pub mod finalize;
pub mod fleet;
pub mod install;
pub mod pass;
pub mod place;
pub mod plans;
pub mod profiles;
pub mod report;
pub mod resolve;
pub mod siblings;
pub mod survey;
pub mod verdict;

use std::time::Duration;

use kube::Client;

use crate::cluster::connections::Connections;
use crate::cluster::provider::Providers;
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
    pub providers: Option<Providers>,
    /// What was rendered lately.
    pub plans: plans::Plans,
    /// The ClusterProfiles.
    pub profiles: profiles::Profiles,
    /// The connections to spokes.
    pub connections: Connections,
    /// All custom resources.
    pub siblings: siblings::Siblings,
    /// Where events go.
    pub events: events::Events,
    /// What is counted.
    pub metrics: Metrics,
    /// How soon a component that isn't ready is looked at again, if nothing is heard of it.
    pub poll_interval: Duration,
}
