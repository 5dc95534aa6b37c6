//! `knative-operator completions` and `man`: what packages of the command contain.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;

use super::{Args, output};

/// Prints the completions of `shell`.
pub fn completions(shell: Shell) -> ExitCode {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Args::command(), "knative-operator", &mut text);
    output::print(&String::from_utf8_lossy(&text))
}

/// Writes a manual page for the command and for each subcommand to `folder`.
pub fn write(folder: &Path) -> ExitCode {
    match std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Args::command(), folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: cannot write manual pages to {}: {error}", folder.display());
            ExitCode::from(2)
        }
    }
}
