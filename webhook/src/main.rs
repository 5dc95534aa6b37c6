//! Admission webhook for `KnativeServing`, `KnativeEventing` and `KnativeFleet`: [`request`] parses
//! reviews, [`admission`] and [`fleet`] validate requests, [`approval`] binds approvals to their
//! fleets, [`review`] is the answer, [`routes`] has limits, and [`body`] receives bodies within
//! them.

mod admission;
mod approval;
mod args;
mod authorization;
mod body;
mod cluster_facts;
mod competitors;
mod definition;
mod fleet;
#[cfg(test)]
mod fuzz;
mod informers;
mod lifetime;
mod live;
mod metrics;
mod request;
mod review;
mod routes;
mod schema;
mod stored_fleets;
mod turns;

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
