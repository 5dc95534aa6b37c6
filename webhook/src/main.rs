//! Admission webhook for `KnativeServing` and `KnativeEventing`: [`review`] reads what the API server asks, [`judge`]
//! answers, [`serve`] does so over TLS.

mod args;
#[cfg(test)]
mod fuzz;
mod judge;
mod known;
mod learn;
mod metrics;
mod review;
mod routes;
mod serve;

use std::process::ExitCode;

use clap::Parser;
use tikv_jemallocator::Jemalloc;

/// A review is many small allocations: with glibc's, and more so with musl's, they are half of what it costs.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    knative_operator_runtime::install_crypto();
    args::Args::parse().run()
}
