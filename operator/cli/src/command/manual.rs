//! `knative-operator completions` and `man`: what packages of the command contain.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory;
use clap_complete::Shell;
use clap_complete::env::Shells;

use super::{Args, output};

/// Prints the completions of `shell`: a script that runs the command for each completion.
pub fn completions(shell: Shell) -> ExitCode {
    const NAME: &str = "knative-operator";
    let (shells, mut text) = (Shells::builtins(), Vec::new());
    // Each shell of the flag has a completer, and writing to a Vec can't fail.
    if let Some(completer) = shells.completer(&shell.to_string()) {
        let _ = completer.write_registration("COMPLETE", NAME, NAME, NAME, &mut text);
    }
    output::print_data(&String::from_utf8_lossy(&text))
}

/// Writes a manual page for the command and for each subcommand to `folder`.
pub fn write(folder: &Path) -> ExitCode {
    match std::fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(Args::command(), folder)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            output::report(&format!("error: cannot write manual pages to {}: {error}", folder.display()));
            ExitCode::from(2)
        }
    }
}
