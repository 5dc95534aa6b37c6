//! Simulated spokes, and their ClusterProfiles on a hub.

pub mod hub;

pub use test_bed::sim::{Sim, Spoke, Turn};
