//! `knative-operator audit`: the stored resources that the webhook would refuse with
//! `authorization: enforce`, if they were created now. [`stored`] lists the resources, [`bindings`]
//! the [`subject`]s that could have written them, [`reviewer`] asks the API server, [`check`] finds
//! who lacks what, and [`report`] is the output.

mod bindings;
mod check;
mod report;
mod reviewer;
mod stored;
mod subject;

use std::process::ExitCode;

use knative_operator_runtime::user::UserArgs;

use super::output::{self, PROGRAM};

use check::{Auditor, Suspects};
use subject::Subject;

/// Flags of `audit`.
#[derive(Clone, Debug, clap::Args)]
pub struct AuditArgs {
    #[command(flatten)]
    user: UserArgs,
    /// All namespaces. This is the default without a namespace.
    #[arg(short = 'A', long)]
    all_namespaces: bool,
    /// The user to ask about. Defaults to all subjects of bindings that may write a resource.
    #[arg(long = "as", value_name = "USER")]
    subject: Option<String>,
    /// A group of the user. You can repeat it.
    #[arg(long = "as-group", value_name = "GROUP", requires = "subject")]
    groups: Vec<String>,
}

/// Prints what is not permitted. Exit status: 0 nothing, 1 there is something, 2 error.
pub fn run(args: &AuditArgs) -> ExitCode {
    output::run(execute(args))
}

async fn execute(args: &AuditArgs) -> Result<ExitCode, String> {
    let (client, namespace) = args.user.client(PROGRAM).await?;
    let is_limited = args.user.has_namespace() && !args.all_namespaces;
    let namespace = Some(namespace.as_str()).filter(|_| is_limited);
    let resources = stored::list(&client, namespace).await?;
    let suspects = match &args.subject {
        Some(name) => Suspects::One(Subject::user(name, &args.groups)),
        None => Suspects::Bound(bindings::list(&client, namespace).await?),
    };
    let findings = Auditor::new(client, suspects).check(&resources).await?;
    output::print(&report::text(&findings, resources.len()));
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
