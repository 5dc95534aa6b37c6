//! The Knative operator: installs what `KnativeServing` and `KnativeEventing` ask for, on its own cluster or on spokes,
//! and keeps it so. See `docs/architecture.md` for the map.

mod apply;
mod args;
mod cluster;
mod controller;
mod health;
mod kinds;
mod leader;
mod metrics;
mod object;
mod plan;
mod release;
mod render;
mod run;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    knative_operator_runtime::install_crypto();
    args::Args::parse().execute()
}
