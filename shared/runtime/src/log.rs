//! Logs on stderr.

use std::fmt;
use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use knative_operator_shared::text::{cut, show_controls};
use tracing::field::Field;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::{JsonFields, Writer, debug_fn};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::json_lines::{JsonLines, MAX_FIELD};
use crate::trace::{FILTER, TraceError, Traces};

/// Flags of logs.
#[derive(Args, Clone, Debug)]
pub struct LogArgs {
    /// Log level, or directives such as `info,kube=debug`.
    #[arg(long, env = "LOG_LEVEL", default_value = "info")]
    log_level: String,
    /// Format of log lines.
    #[arg(long, env = "LOG_FORMAT", default_value = "json")]
    log_format: Format,
}

/// Format of log lines.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Format {
    /// One JSON object per line.
    Json,
    /// Human-readable.
    Plain,
}

/// Why logs and traces can't start.
#[derive(Debug, thiserror::Error)]
pub enum LogError {
    /// The log level is invalid.
    #[error("--log-level: {0}")]
    Level(#[from] tracing_subscriber::filter::ParseError),
    /// The variables of traces are invalid.
    #[error(transparent)]
    Traces(#[from] TraceError),
}

impl LogArgs {
    /// Starts the logs of `program`, and its traces if the environment asks for them. Call it in a
    /// runtime. kube's client logs bodies that it can't parse at level warn, Secrets among them, so
    /// only its errors are logged. kube's watcher logs errors in Rust's debug form; its callers log
    /// them as text. Both unless the level names these targets.
    ///
    /// # Errors
    ///
    /// If the level or a variable is invalid.
    pub fn start(&self, program: &'static str) -> Result<Option<Traces>, LogError> {
        let quieter = [("kube_client", "error"), ("kube_runtime", "off"), ("opentelemetry", "off")];
        let unnamed = quieter.iter().filter(|(target, _)| !self.log_level.contains(target));
        let directives = unnamed.fold(self.log_level.clone(), |all, (target, level)| format!("{all},{target}={level}"));
        let filter: EnvFilter = directives.parse()?;
        let traces = Traces::from_environment(program)?;
        let lines =
            tracing_subscriber::fmt::layer().with_writer(std::io::stderr).with_ansi(std::io::stderr().is_terminal());
        let lines = match self.log_format {
            Format::Json => lines.event_format(JsonLines).fmt_fields(JsonFields::new()).boxed(),
            Format::Plain => lines.fmt_fields(debug_fn(write_field).delimited(" ")).boxed(),
        };
        let exported = match &traces {
            Some(traces) => {
                let layer = tracing_opentelemetry::layer().with_tracer(traces.tracer()).with_location(false);
                Some(layer.with_threads(false).with_filter(FILTER.parse::<Targets>()?))
            }
            None => None,
        };
        tracing_subscriber::registry().with(lines.with_filter(filter)).with(exported).init();
        Ok(traces)
    }
}

/// Writes `field` of a plain line: of the length that it has in JSON, and on one line.
fn write_field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let text = cut(&show_controls(&format!("{value:?}")).replace('\n', "\\n"), MAX_FIELD);
    match field.name() {
        "message" => write!(writer, "{text}"),
        name => write!(writer, "{name}={text}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::json_lines::tests::Buffer;

    #[test]
    fn field_of_plain_line_is_short_and_on_one_line() {
        let buffer = Buffer::default();
        let writer = buffer.clone();
        let subscriber = tracing_subscriber::fmt()
            .fmt_fields(debug_fn(write_field).delimited(" "))
            .with_ansi(false)
            .with_writer(move || writer.clone())
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            tracing::warn!(why = %"a\nforged\u{1b}[2J", name = "x", text = "y".repeat(3000), "failed");
        });
        let text = buffer.text();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(r#" failed why=a\nforged\u{1b}[2J name="x" text="yyy"#), "{text}");
        assert!(text.len() < MAX_FIELD + 200 && text.ends_with(" more bytes)\n"), "{text}");
    }
}
