//! `knative-operator status`: the state of a hub, and what to do about it.

mod line;
mod tree;
mod watch;

use std::process::ExitCode;

use jiff::Timestamp;
use knative_operator_runtime::user::UserArgs;
use knative_operator_shared::yaml;
use kube::Client;

use super::output::{self, PROGRAM};
use crate::overview::follow::Follower;
use crate::overview::{self, Overview, Watched};

pub use line::Style;
pub use tree::bar;
use tree::{Options, render};

/// Flags of `status`.
#[derive(Clone, Debug, clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    user: UserArgs,
    /// All namespaces.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// Output format.
    #[arg(short = 'o', long, value_enum, default_value_t)]
    output: Format,
    /// Follows changes until you press Ctrl+C.
    #[arg(short = 'w', long)]
    watch: bool,
}

/// Output format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
enum Format {
    /// A tree; Ready clusters of a large fleet are counted, not listed.
    #[default]
    Table,
    /// A tree with all clusters and the last repairs.
    Wide,
    /// One JSON document; with --watch, one for each change.
    Json,
    /// One YAML document; with --watch, one for each change.
    Yaml,
}

/// Prints the status. Exit status: 0 all Ready, 1 not, 2 error.
pub fn run(args: &StatusArgs) -> ExitCode {
    output::run(execute(args))
}

async fn execute(args: &StatusArgs) -> Result<ExitCode, String> {
    let (client, namespace) = args.user.client(PROGRAM).await?;
    let mut follower = follow(&client, &namespace, args.all_namespaces);
    follower.listed().await?;
    if args.watch {
        return watch::run(follower, args).await;
    }
    let overview = readable(&follower)?;
    args.print(&args.text(&overview, &Style::of_stdout()));
    if overview.clusters.is_empty() && overview.fleets.is_empty() && !args.all_namespaces {
        output::report(&format!("No resources in namespace {namespace}. Use --all-namespaces (-A) for all of them."));
    }
    Ok(exit_code(&overview))
}

/// Watches the resources in `namespace`, or in all.
pub fn follow(client: &Client, namespace: &str, all: bool) -> Follower {
    Follower::start(client, (!all).then_some(namespace))
}

/// The overview, if the resources can be read.
fn readable(follower: &Follower) -> Result<Overview, String> {
    let errors: Vec<(Watched, &str)> = follower.snapshot().errors().collect();
    let error = |kind: Watched| errors.iter().find(|(other, _)| *other == kind).map(|(_, error)| *error);
    if let (Some(error), Some(_)) = (error(Watched::Servings), error(Watched::Eventings)) {
        let is_forbidden = error.contains("forbidden");
        let hint = if is_forbidden { ". Use -n for a namespace that you can read." } else { "" };
        return Err(format!("knativeservings: {error}{hint}"));
    }
    Ok(overview::overview(follower.snapshot(), Timestamp::now()))
}

fn exit_code(overview: &Overview) -> ExitCode {
    if overview.ready { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

impl StatusArgs {
    /// Prints `text`, which is in the format of the user.
    fn print(&self, text: &str) -> ExitCode {
        match self.output {
            Format::Table | Format::Wide => output::print(text),
            Format::Json | Format::Yaml => output::print_data(text),
        }
    }

    /// `overview` in the format of the user.
    fn text(&self, overview: &Overview, style: &Style) -> String {
        match self.output {
            Format::Table => render(overview, &Options { is_wide: false, now: Timestamp::now() }, style),
            Format::Wide => render(overview, &Options { is_wide: true, now: Timestamp::now() }, style),
            Format::Json if self.watch => format!("{}\n", serde_json::json!(overview)),
            Format::Json => format!("{:#}\n", serde_json::json!(overview)),
            // Plain data with string keys always serializes.
            Format::Yaml => format!("---\n{}", yaml::write(&serde_json::json!(overview)).unwrap_or_default()),
        }
    }
}
