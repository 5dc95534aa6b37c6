//! Logs on stderr.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use tracing_subscriber::filter::Targets;
use tracing_subscriber::fmt::format::JsonFields;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use crate::json_lines::JsonLines;
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
            Format::Plain => lines.boxed(),
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
