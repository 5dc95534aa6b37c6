//! The operator's binary: flags and subcommands are in [`knative_operator::command`].

use std::process::ExitCode;

use tikv_jemallocator::Jemalloc;

/// glibc's allocator keeps the memory of a burst: after the start of a large fleet, several times
/// what is in use.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    knative_operator_runtime::install_crypto();
    knative_operator::command::answer_completions();
    knative_operator::command::Args::read().execute()
}
