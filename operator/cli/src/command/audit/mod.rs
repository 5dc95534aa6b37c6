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

use knative_operator_runtime::user::{Connection, Namespaces, UserArgs, namespace_of_hub};

use super::output;

use check::{Auditor, Suspects};
use subject::Subject;

/// Flags of `audit`.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("user-namespace", namespace_of_hub))]
pub struct AuditArgs {
    #[command(flatten)]
    user: UserArgs,
    #[command(flatten)]
    namespaces: Namespaces,
    /// User to ask about. Defaults to all subjects of bindings that may write a resource.
    #[arg(long = "user", value_name = "USER")]
    subject: Option<String>,
    /// Group of the user. You can repeat it.
    #[arg(long = "group", value_name = "GROUP", requires = "subject")]
    groups: Vec<String>,
}

/// Prints what is not permitted. Exit status: 0 nothing, 1 there is something, 2 error.
pub fn run(args: &AuditArgs) -> ExitCode {
    output::run_on(&args.user, |connection| execute(args, connection))
}

async fn execute(args: &AuditArgs, connection: Connection) -> Result<ExitCode, String> {
    let Connection { client, namespace, .. } = connection;
    let namespace = args.namespaces.only(&namespace).filter(|_| args.user.has_namespace());
    let resources = stored::list(&client, namespace).await?;
    let suspects = match &args.subject {
        Some(name) => Suspects::One(Subject::user(name, &args.groups)),
        None => Suspects::Bound(bindings::list(&client, namespace).await?),
    };
    let findings = Auditor::new(client, suspects).check(&resources).await?;
    output::print(&report::text(&findings, resources.len()));
    Ok(if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::from(1) })
}
