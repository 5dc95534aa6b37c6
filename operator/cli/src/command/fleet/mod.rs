//! `knative-operator fleet`: plans, observes and controls rollouts, with the kubeconfig of the
//! user.

mod approve;
mod delete;
mod edit;
mod fleets;
mod history;
mod plan;
mod retry;
mod status;

use std::process::ExitCode;

use clap::Subcommand;
use knative_operator_rules as rules;
use knative_operator_runtime::error_text;
use knative_operator_runtime::user::{Connection, UserArgs};
use knative_operator_shared::api::{Component, KnativeEventing, KnativeFleet, KnativeServing};
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::Value;

pub use self::history::update_revision;
pub use self::plan::{clusters, profiles, resources};
pub use self::retry::reference;
use super::output::{self, Format, PROGRAM};

/// Flags of `fleet`.
#[derive(Clone, Debug, clap::Args)]
pub struct FleetArgs {
    #[command(flatten)]
    user: UserArgs,
    /// Output format.
    #[arg(short, long, global = true, value_parser = Format::among(&Format::TEXT_OR_VALUE), default_value = "text")]
    output: Format,
    #[command(subcommand)]
    command: FleetCommand,
}

#[derive(Clone, Debug, Subcommand)]
enum FleetCommand {
    /// Shows what a KnativeFleet in a file would change on which clusters, in which stage. Writes
    /// nothing.
    ///
    /// Exit status: 0 shown, 1 the webhook would refuse it, 2 error.
    Plan(plan::PlanArgs),
    /// Shows the progress of a rollout, or lists all fleets.
    ///
    /// Exit status: 0 shown, or with --watch complete, 1 with --watch stopped by failures, with an
    /// invalid spec, or protected while it is deleted, 2 error.
    Status(status::StatusArgs),
    /// Lists the revisions of a fleet, and its last rollouts: who asked for each, how it ended, and
    /// who approved it.
    ///
    /// Exit status: 0 shown, 2 error.
    History {
        /// Name of the fleet. Defaults to the only one in the namespace.
        name: Option<String>,
    },
    /// Approves the stage that waits for it, or a blocked removal, after it showed what that
    /// changes, and asked: creates a KnativeFleetApproval.
    ///
    /// Exit status: 0 approved, 1 declined, 2 error.
    Approve(approve::ApproveArgs),
    /// Sets spec.rollout.paused: no further cluster is started, and none is removed.
    ///
    /// Exit status: 0 changed, 2 error.
    Pause {
        /// Name of the fleet.
        name: String,
        /// Why. The condition Paused shows it, with the user. A fleet that is paused already is
        /// paused by this user then.
        #[arg(long)]
        reason: Option<String>,
    },
    /// Resumes a paused rollout. Clusters that failed stay so until `fleet retry`.
    ///
    /// Exit status: 0 changed, 2 error.
    Resume {
        /// Name of the fleet.
        name: String,
    },
    /// Gives clusters that failed another try, without a change of the fleet. Clusters that are
    /// skipped must be named. Needs the permission to approve.
    ///
    /// Exit status: 0 changed, or no cluster failed, 2 error.
    Retry(retry::RetryArgs),
    /// Lets the rollout leave clusters as they are: it neither waits for them nor updates them, and
    /// their failures don't count. `fleet retry NAME CLUSTER` ends that, and so does the next
    /// change of what the fleet rolls out, or where. Needs the permission to approve.
    ///
    /// Exit status: 0 changed, 2 error.
    Skip(retry::SkipArgs),
    /// Sets the templates and overrides to those of an earlier revision, after it showed what that
    /// changes, and asked.
    ///
    /// Exit status: 0 changed, 1 declined, 2 error.
    Rollback(edit::RollbackArgs),
    /// Deletes a fleet, after it showed the clusters from which that uninstalls, and asked.
    ///
    /// Exit status: 0 deleted, 1 declined, 2 error.
    Delete(delete::DeleteArgs),
}

/// Runs the subcommand. Exit status: 0 success, 1 stopped by failures or refused, 2 error.
pub fn run(args: &FleetArgs) -> ExitCode {
    output::run_on(&args.user, |connection| execute(args, connection))
}

async fn execute(args: &FleetArgs, connection: Connection) -> Result<ExitCode, String> {
    let Connection { client, namespace, .. } = connection;
    let hub = Hub { client, namespace, format: args.output };
    match &args.command {
        FleetCommand::Plan(plan) => plan::run(&hub, plan).await,
        FleetCommand::Status(status) => status::run(&hub, status).await,
        FleetCommand::History { name } => history::run(&hub, name.as_deref()).await,
        FleetCommand::Approve(args) => approve::approve(&hub, args).await,
        FleetCommand::Pause { name, reason } => edit::set_paused(&hub, name, true, reason.as_deref()).await,
        FleetCommand::Resume { name } => edit::set_paused(&hub, name, false, None).await,
        FleetCommand::Retry(args) => retry::retry(&hub, args).await,
        FleetCommand::Skip(args) => retry::skip(&hub, args).await,
        FleetCommand::Delete(delete) => delete::run(&hub, delete).await,
        FleetCommand::Rollback(rollback) => edit::roll_back(&hub, rollback).await,
    }
}

/// The hub of the user.
struct Hub {
    client: Client,
    namespace: String,
    format: Format,
}

impl Hub {
    /// The fleet called `name`.
    async fn fleet(&self, name: &str) -> Result<KnativeFleet, String> {
        let missing =
            || format!("KnativeFleet {}/{name} does not exist; to list all: {}", self.namespace, fleets::LIST);
        let fleets: Api<KnativeFleet> = Api::namespaced(self.client.clone(), &self.namespace);
        fleets.get_opt(name).await.map_err(|error| error_text(&error))?.ok_or_else(missing)
    }

    /// The KnativeServings or KnativeEventings in the namespace.
    fn components(&self, component: Component) -> Api<DynamicObject> {
        let kind = match component {
            Component::Serving => ApiResource::erase::<KnativeServing>(&()),
            Component::Eventing => ApiResource::erase::<KnativeEventing>(&()),
        };
        Api::namespaced_with(self.client.clone(), &self.namespace, &kind)
    }

    /// The resources of the fleet with `uid`.
    async fn resources_of(&self, uid: Option<&str>) -> Result<Vec<(Component, DynamicObject)>, String> {
        let mut own = Vec::new();
        for component in Component::ALL {
            let listed = self.components(component).list(&ListParams::default()).await;
            let listed = listed.map_err(|error| error_text(&error))?.items.into_iter();
            let is_own = |resource: &DynamicObject| {
                resource.metadata.owner_references.iter().flatten().any(|owner| Some(owner.uid.as_str()) == uid)
            };
            own.extend(listed.filter(is_own).map(|resource| (component, resource)));
        }
        Ok(own)
    }

    /// Untyped objects of the fleet's group. A typed one would lose fields that it doesn't know.
    fn untyped(&self, kind: &str, plural: &str) -> Api<DynamicObject> {
        let gvk = GroupVersionKind::gvk(
            knative_operator_shared::label::GROUP,
            knative_operator_shared::label::FLEET_VERSION,
            kind,
        );
        let resource = ApiResource::from_gvk_with_plural(&gvk, plural);
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    /// Prints `text`, or `value` for programs.
    fn print(&self, text: &str, value: &Value) {
        self.format.print(text, value);
    }
}

/// The fleet in `object`.
fn parse(object: &Value) -> Result<KnativeFleet, String> {
    rules::parse_fleet(object).map_err(|violation| violation.to_string())
}
