//! Writes the files of a release that are derived from the rendered chart, for
//! `tests/package/release.sh`.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use knative_operator_shared::yaml;
use knative_operator_tests::package::{krew, olm, provenance};
use serde_json::Value;

#[derive(Parser)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes the bundle for OperatorHub to a folder.
    Olm {
        /// The chart, rendered for the Operator Lifecycle Manager.
        #[arg(long)]
        rendered: PathBuf,
        #[arg(long)]
        version: String,
        /// Time of the release, in RFC 3339.
        #[arg(long)]
        created: String,
        #[arg(long)]
        out: PathBuf,
    },
    /// Prints the krew manifest.
    Krew {
        #[arg(long)]
        version: String,
        /// ARCHITECTURE=SHA256 of each archive.
        #[arg(long = "archive")]
        archives: Vec<String>,
    },
    /// Prints the predicate of the provenance (SLSA v1).
    Provenance {
        #[arg(long)]
        version: String,
        #[arg(long)]
        revision: String,
        /// Time of the release, in RFC 3339.
        #[arg(long)]
        created: String,
        /// Who builds: the URI of the builder.
        #[arg(long)]
        builder: String,
        /// Lock files, whose digests are recorded.
        #[arg(long = "material")]
        materials: Vec<PathBuf>,
    },
}

fn main() -> ExitCode {
    match run(Args::parse().command) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> knative_operator_tests::Result<String> {
    match command {
        Command::Olm { rendered, version, created, out } => {
            let objects: Vec<Value> = yaml::parse_all(&std::fs::read_to_string(rendered)?)?;
            olm::write(&objects, &version, &created, &out)?;
            Ok(String::new())
        }
        Command::Krew { version, archives } => Ok(yaml::write(&krew::manifest(&version, &archives)?)?),
        Command::Provenance { version, revision, created, builder, materials } => {
            let predicate = provenance::predicate(&version, &revision, &created, &builder, &materials)?;
            Ok(format!("{predicate:#}\n"))
        }
    }
}
