//! Admission webhook for `KnativeServing`, `KnativeEventing` and `KnativeFleet`: [`review`] parses
//! and answers reviews, [`admission`] and [`fleet`] validate requests, [`serve`] accepts TLS
//! connections.

mod admission;
mod args;
mod authorization;
mod cluster_facts;
mod fleet;
#[cfg(test)]
mod fuzz;
mod informers;
mod metrics;
mod review;
mod routes;

use std::process::ExitCode;

use clap::Parser;
use tikv_jemallocator::Jemalloc;

/// A review makes many small allocations: with the allocators of glibc and musl, they take half of
/// its time.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    knative_operator_runtime::install_crypto();
    args::Args::parse().run()
}
