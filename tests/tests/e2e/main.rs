//! End-to-end tests of the real binaries with real control planes.
//!
//! Most tests share a hub with three spokes ([`support::fleet`]); those that break something have
//! their own.

#![allow(missing_docs, clippy::unwrap_used, clippy::panic, clippy::large_futures)] // these are tests

mod abuse;
mod admission;
mod attacks;
mod audit;
mod authorization;
mod causes;
mod client_certificates;
mod coalesce;
mod crash;
mod credentials;
mod defects;
mod defects_state;
mod document;
mod documents;
mod drift;
mod duplicates;
mod failures;
mod fleet;
mod flood;
mod go_site;
mod go_state;
mod go_takeover;
mod guide;
mod helm;
mod hostile;
mod inventory_versions;
mod knative_fleet;
mod knative_fleet_clusters;
mod knative_fleet_crash;
mod knative_fleet_gates;
mod knative_fleet_guide;
mod knative_fleet_removal;
mod knative_fleet_skip;
mod lifecycle;
mod lives;
mod load;
mod local;
mod migration;
mod migration_pods;
mod newer;
mod newer_site;
mod no_spec;
mod opener;
mod orphan;
mod outage;
mod overrides;
mod owners;
mod patch_cases;
mod patches;
mod processes;
mod pure_hub;
mod reasons;
mod recovery;
mod remote;
mod restart;
mod rotation;
mod rules;
mod secure_metrics;
mod silence;
mod spoke_role;
mod stalled;
mod status;
mod support;
mod suspension;
mod tenancy;
mod terminating;
mod traces;
mod trouble;
mod upgrade;
mod ways;
mod writers;
