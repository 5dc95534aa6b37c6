//! `knative-operator status`: the state of a hub, and what to do about it.

mod line;
mod tree;
mod watch;

use std::process::ExitCode;

use jiff::Timestamp;
use knative_operator_runtime::user::{Connection, Namespaces, UserArgs};
use serde_json::json;

use super::output::{self, Format};
use knative_operator_overview::follow::Follower;
use knative_operator_overview::{Overview, Watched, overview};

pub use line::Style;
pub use tree::bar;
use tree::{Options, render};

/// Flags of `status`.
#[derive(Clone, Debug, clap::Args)]
pub struct StatusArgs {
    #[command(flatten)]
    user: UserArgs,
    #[command(flatten)]
    namespaces: Namespaces,
    /// Output format: a tree, in which Ready clusters of a large fleet are counted, or with wide
    /// all clusters and the last repairs; or a document, with --watch one for each change.
    #[arg(short, long, value_parser = Format::among(&[Format::Text, Format::Wide, Format::Json, Format::Yaml]),
        default_value = "text")]
    output: Format,
    /// Follows changes until you press Ctrl+C.
    #[arg(short = 'w', long)]
    watch: bool,
}

/// Prints the status. Exit status: 0 all Ready, 1 not, 2 error.
pub fn run(args: &StatusArgs) -> ExitCode {
    output::run_on(&args.user, |connection| execute(args, connection))
}

async fn execute(args: &StatusArgs, connection: Connection) -> Result<ExitCode, String> {
    let namespace = args.namespaces.only(&connection.namespace);
    let mut follower = Follower::start(&connection.client, namespace);
    follower.listed().await.map_err(|error| error.to_string())?;
    if args.watch {
        return watch::run(follower, args).await;
    }
    let overview = readable(&follower)?;
    args.output.write(&args.text(&overview, &Style::of_stdout()));
    if let Some(namespace) = namespace.filter(|_| overview.clusters.is_empty() && overview.fleets.is_empty()) {
        output::report(&format!("No resources in namespace {namespace}. Use --all-namespaces (-A) for all of them."));
    }
    Ok(exit_code(&overview))
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
    Ok(overview(follower.snapshot(), Timestamp::now()))
}

fn exit_code(overview: &Overview) -> ExitCode {
    if overview.ready { ExitCode::SUCCESS } else { ExitCode::from(1) }
}

impl StatusArgs {
    /// `overview` in the format of the user.
    fn text(&self, overview: &Overview, style: &Style) -> String {
        if self.output.is_text() {
            let options = Options { is_wide: self.output == Format::Wide, now: Timestamp::now() };
            return render(overview, &options, style);
        }
        let value = json!(overview);
        if self.watch { self.output.next_document(&value) } else { self.output.document(&value) }
    }
}
