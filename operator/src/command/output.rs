//! Output of subcommands.

use std::io::Write;
use std::process::ExitCode;

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

/// Writes `text` to stdout.
pub fn print(text: &str) -> ExitCode {
    // A reader that closes the pipe is no error.
    let _ = std::io::stdout().write_all(text.as_bytes());
    ExitCode::SUCCESS
}

/// Prints `outcome`: text on stdout and warnings on stderr, or the error on stderr and nothing on
/// stdout.
pub fn finish(outcome: Result<CommandOutput, String>) -> ExitCode {
    let mut stderr = std::io::stderr();
    match outcome {
        Ok(CommandOutput { text, warnings }) => {
            for warning in warnings {
                let _ = writeln!(stderr, "warning: {warning}");
            }
            print(&text)
        }
        Err(error) => {
            let _ = writeln!(stderr, "error: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Output of a subcommand.
pub struct CommandOutput {
    /// Written to stdout.
    pub text: String,
    /// Written to stderr, one line each.
    pub warnings: Vec<String>,
}
