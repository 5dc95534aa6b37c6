//! The Knative operator: installs what `KnativeServing` and `KnativeEventing` ask for, on its own cluster or on spokes,
//! and keeps it so. See `docs/architecture.md` for the map.

mod apply;
pub mod args;
mod cluster;
mod command;
mod controller;
mod conversion;
mod health;
pub mod kinds;
mod leader;
mod metrics;
pub mod object;
mod offer;
pub mod owner;
pub mod packed;
pub mod plan;
pub mod release;
pub mod render;
mod run;
mod yaml;
