//! The operator's binary: the command line, with the operator as one of its subcommands.

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

/// glibc's allocator keeps the memory of a burst: after the start of a large fleet, several times
/// what is in use.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    knative_operator_runtime::install_crypto();
    knative_operator_cli::answer_completions();
    knative_operator_cli::Args::read().execute(knative_operator::run)
}
