//! The operator's binary: flags and subcommands are in [`knative_operator::args`].

use std::process::ExitCode;

use clap::Parser;
use tikv_jemallocator::Jemalloc;

/// glibc's keeps what a burst of work has needed: after the start of a large fleet, several times what it holds.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    knative_operator_runtime::install_crypto();
    knative_operator::args::Args::parse().execute()
}
