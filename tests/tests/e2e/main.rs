//! End-to-end tests of the real binaries with real control planes.
//!
//! Most tests share a hub with three spokes ([`support::fleet`]); those that break something have
//! their own.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures)] // these are tests

mod abuse;
mod admission;
mod authorization;
mod coalesce;
mod crash;
mod document;
mod documents;
mod drift;
mod failures;
mod fleet;
mod guide;
mod helm;
mod hostile;
mod knative_fleet;
mod knative_fleet_clusters;
mod knative_fleet_crash;
mod knative_fleet_guide;
mod lives;
mod load;
mod local;
mod migration;
mod no_spec;
mod outage;
mod overrides;
mod patch_cases;
mod patches;
mod processes;
mod reasons;
mod remote;
mod restart;
mod rotation;
mod rules;
mod secure_metrics;
mod status;
mod support;
mod takeover;
mod terminating;
mod traces;
mod trouble;
mod upgrade;
mod ways;
mod writers;
