//! Output of subcommands.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use super::terminal::visible;

/// User agent, and field manager of writes, of subcommands that use the kubeconfig of the user.
pub const PROGRAM: &str = "knative-operator-cli";

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Output {
    /// One JSON document.
    Json,
    /// YAML.
    #[default]
    Yaml,
}

/// The runtime for asynchronous work of a subcommand.
pub fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|e| format!("cannot start a thread: {e}"))
}

/// Runs an asynchronous subcommand; prints its error, with exit status 2.
pub fn run(command: impl Future<Output = Result<ExitCode, String>>) -> ExitCode {
    exit(runtime().and_then(|runtime| runtime.block_on(command)))
}

/// The exit status of a subcommand; prints its error, with exit status 2.
pub fn exit(outcome: Result<ExitCode, String>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        report(&format!("error: {error}"));
        ExitCode::from(2)
    })
}

/// Writes `text` for people to stdout. Control characters in it are shown, not obeyed.
pub fn print(text: &str) -> ExitCode {
    write(&visible(text))
}

/// Writes `text` for programs to stdout: unchanged, unless stdout is a terminal.
pub fn print_data(text: &str) -> ExitCode {
    if std::io::stdout().is_terminal() { print(text) } else { write(text) }
}

fn write(text: &str) -> ExitCode {
    // A reader that closes the pipe is no error.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Writes `line` to stderr. Control characters in it are shown, not obeyed.
pub fn report(line: &str) {
    let _ = writeln!(std::io::stderr(), "{}", visible(line));
}

/// Prints `outcome`: text on stdout and warnings on stderr; or the error on stderr and nothing on
/// stdout, with exit status 2.
pub fn finish(outcome: Result<CommandOutput, String>) -> ExitCode {
    exit(outcome.map(|CommandOutput { text, warnings, is_data }| {
        for warning in warnings {
            report(&format!("warning: {warning}"));
        }
        if is_data { print_data(&text) } else { print(&text) }
    }))
}

/// Output of a subcommand.
pub struct CommandOutput {
    /// Written to stdout.
    pub text: String,
    /// Written to stderr, one line each.
    pub warnings: Vec<String>,
    /// Whether the text is for programs.
    pub is_data: bool,
}
