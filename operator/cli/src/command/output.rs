//! Output of subcommands.

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use clap::ValueEnum;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use knative_operator_runtime::process;
use knative_operator_runtime::user::{Connection, UserArgs};
use knative_operator_shared::text::one_line;
use knative_operator_shared::yaml;
use serde_json::Value;

use super::terminal::visible;

/// User agent, and field manager of writes, of subcommands that use the kubeconfig of the user.
pub const PROGRAM: &str = "knative-operator-cli";

/// Output format. Each command has those that it can print.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// Text for people.
    #[value(alias = "table")]
    Text,
    /// Text for people, with all details.
    Wide,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// SARIF 2.1.0, for code scanning.
    Sarif,
}

impl Format {
    /// Formats of a command that prints text or a value.
    pub const TEXT_OR_VALUE: [Self; 3] = [Self::Text, Self::Json, Self::Yaml];

    /// Parses one of `formats`.
    pub fn among(formats: &[Self]) -> impl TypedValueParser<Value = Self> + use<> {
        let values = formats.iter().filter_map(Self::to_possible_value);
        PossibleValuesParser::new(values).try_map(|word| Self::from_str(&word, false))
    }

    /// Whether it is for people.
    pub fn is_text(self) -> bool {
        matches!(self, Self::Text | Self::Wide)
    }

    /// `value` as one document.
    pub fn document(self, value: &Value) -> String {
        // Plain data with string keys always serializes.
        if self == Self::Yaml { yaml::write(value).unwrap_or_default() } else { format!("{value:#}\n") }
    }

    /// `value` as one of several documents; JSON on one line.
    pub fn next_document(self, value: &Value) -> String {
        if self == Self::Yaml { format!("---\n{}", self.document(value)) } else { format!("{value}\n") }
    }

    /// Prints `text`, which is in this format.
    pub fn write(self, text: &str) -> ExitCode {
        if self.is_text() { print(text) } else { print_data(text) }
    }

    /// Prints `text`, or `value` for programs.
    pub fn print(self, text: &str, value: &Value) -> ExitCode {
        if self.is_text() { print(text) } else { print_data(&self.document(value)) }
    }
}

/// The runtime for asynchronous work of a subcommand.
pub fn runtime() -> Result<tokio::runtime::Runtime, String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    runtime.map_err(|e| format!("cannot start a thread: {e}"))
}

/// Does asynchronous work, with a runtime that ends with it.
pub fn block_on<T>(work: impl Future<Output = T>) -> Result<T, String> {
    let runtime = runtime()?;
    let done = runtime.block_on(work);
    process::end(runtime);
    Ok(done)
}

/// Runs an asynchronous subcommand; prints its error, with exit status 2.
pub fn run(command: impl Future<Output = Result<ExitCode, String>>) -> ExitCode {
    exit(block_on(command).unwrap_or_else(Err))
}

/// Runs a subcommand on the cluster of `user`. Its errors name the cluster.
pub fn run_on<F>(user: &UserArgs, command: impl FnOnce(Connection) -> F) -> ExitCode
where
    F: Future<Output = Result<ExitCode, String>>,
{
    run(async {
        let connection = user.connect(PROGRAM).await.map_err(|error| error.to_string())?;
        let server = connection.server.clone();
        command(connection).await.map_err(|error| with_server(error, &server))
    })
}

/// `error`, with `server` on a line of its own, unless it is named.
fn with_server(error: String, server: &str) -> String {
    if error.contains(server) { error } else { format!("{error}\ncluster: {server}") }
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
            report(&format!("warning: {}", one_line(&warning)));
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn errors_name_the_cluster_once() {
        let server = "https://hub:6443 (context prod, ~/.kube/config)";
        let expected = format!("KnativeFleet n/a does not exist\ncluster: {server}");
        assert_eq!(with_server("KnativeFleet n/a does not exist".to_owned(), server), expected);
        let unreachable = format!("cannot reach the API server {server}: timed out");
        assert_eq!(with_server(unreachable.clone(), server), unreachable);
    }

    #[test]
    fn documents_are_complete_or_follow_each_other() {
        let value = json!({"a": 1});
        assert_eq!(Format::Json.document(&value), "{\n  \"a\": 1\n}\n");
        assert_eq!(Format::Json.next_document(&value), "{\"a\":1}\n");
        assert_eq!(Format::Yaml.document(&value), "a: 1\n");
        assert_eq!(Format::Yaml.next_document(&value), "---\na: 1\n");
    }
}
