//! The operator's binary: flags and subcommands are in [`knative_operator::args`].

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    knative_operator_runtime::install_crypto();
    knative_operator::args::Args::parse().execute()
}
