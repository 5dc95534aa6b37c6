//! Logs on stderr.

use std::io::IsTerminal;

use clap::{Args, ValueEnum};
use tracing_subscriber::EnvFilter;

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

impl LogArgs {
    /// Starts logging. kube's client logs bodies that it can't parse at level warn, Secrets among
    /// them, so only its errors are logged. kube's watcher logs errors in Rust's debug form; its
    /// callers log them as text. Both unless the level names these targets.
    pub fn start(&self) -> Result<(), tracing_subscriber::filter::ParseError> {
        let quieter = [("kube_client", "error"), ("kube_runtime", "off")];
        let unnamed = quieter.iter().filter(|(target, _)| !self.log_level.contains(target));
        let directives = unnamed.fold(self.log_level.clone(), |all, (target, level)| format!("{all},{target}={level}"));
        let filter: EnvFilter = directives.parse()?;
        let builder = tracing_subscriber::fmt()
            .with_env_filter(filter)
            .with_writer(std::io::stderr)
            .with_ansi(std::io::stderr().is_terminal());
        match self.log_format {
            Format::Json => builder.json().flatten_event(true).init(),
            Format::Plain => builder.init(),
        }
        Ok(())
    }
}
