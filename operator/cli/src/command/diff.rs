//! `knative-operator diff`: shows what would change on a cluster, by server-side dry run.

use std::process::ExitCode;

use futures::StreamExt;
use knative_operator_runtime::user::{Connection, UserArgs};
use knative_operator_shared::api::Knative;
use knative_operator_shared::label::{DIGEST, FIELD_MANAGER};
use knative_operator_shared::text::one_line;
use kube::api::{Patch, PatchParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::files::{FileArgs, FileResource};
use super::output;
use super::release_args::ReleaseArgs;
use super::status::Style;
use super::unified::{diff, without_noise};
use knative_operator_apply::anchor::InventoryStore;
use knative_operator_apply::inventory::Inventory;
use knative_operator_apply::{differ, preserve, remove, update_strategy};
use knative_operator_objects::plan::{Item, Plan};
use knative_operator_objects::{Kind, ObjectId};
use knative_operator_runtime::untyped::metadata_api;

/// Concurrent requests.
const CONCURRENCY: usize = 16;
/// Help of --namespace.
const NAMESPACE: &str = "Namespace of resources without one. Defaults to knative-serving and knative-eventing";
/// Placeholder for the uid of an owner that does not exist yet.
const NO_UID: &str = "00000000-0000-0000-0000-000000000000";

/// Flags of `diff`.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("user-namespace", |flag| flag.help(NAMESPACE)))]
pub struct DiffArgs {
    #[command(flatten)]
    files: FileArgs,
    #[command(flatten)]
    releases: ReleaseArgs,
    /// The cluster of the installation: the spoke itself for a resource with clusterProfileRef.
    #[command(flatten)]
    user: UserArgs,
    /// When the output has colors.
    #[arg(long, value_enum, default_value_t)]
    color: Color,
}

/// When the output has colors.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Color {
    /// On a terminal, unless the environment variable NO_COLOR is set.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Prints the differences and a summary. Exit status: 0 no change, 1 changes, 2 error.
pub fn run(args: &DiffArgs) -> ExitCode {
    let color = match args.color {
        Color::Auto => Style::of_stdout().colors,
        Color::Always => true,
        Color::Never => false,
    };
    let read = args.files.resources(args.user.namespace(), false);
    output::exit(read.map(|read| output::run_on(&args.user, |connection| changes(args, read, connection, color))))
}

async fn changes(
    args: &DiffArgs,
    (mut resources, mut warnings): (Vec<FileResource>, Vec<String>),
    connection: Connection,
    color: bool,
) -> Result<ExitCode, String> {
    let (mut text, mut counts) = (String::new(), Counts::default());
    for FileResource { file, resource } in &mut resources {
        let file = file.as_str();
        let plan = async |resource: &Knative, anchor: String| {
            args.releases.plan(resource, &anchor).await.map_err(|why| format!("{file}: {why}"))
        };
        let (own, difference) = difference(&connection.client, resource, plan, color).await?;
        warnings.extend(own);
        text += &difference.text;
        counts.add(&difference.counts);
    }
    for warning in warnings {
        output::report(&format!("warning: {}", one_line(&warning)));
    }
    text += &counts.summary();
    output::print(&text);
    let is_same = counts.created + counts.changed + counts.deleted == 0;
    Ok(if is_same { ExitCode::SUCCESS } else { ExitCode::from(1) })
}

/// The difference between the plan of a resource and a cluster.
pub struct Difference {
    /// A unified diff.
    pub text: String,
    counts: Counts,
}

impl Difference {
    /// A line with the numbers of objects.
    pub fn summary(&self) -> String {
        self.counts.summary()
    }
}

/// The difference between `resource`, whose plan `plan` computes from the uid of its anchor, and
/// its cluster; with warnings.
pub async fn difference(
    client: &Client,
    resource: &mut Knative,
    plan: impl AsyncFnOnce(&Knative, String) -> Result<(Plan, Vec<String>), String>,
    color: bool,
) -> Result<(Vec<String>, Difference), String> {
    set_uid(client, resource).await.map_err(|e| knative_operator_runtime::error_text(&e))?;
    let resource: &Knative = resource;
    let about = |message: String| format!("{} {}: {message}", resource.component(), resource.name());
    let (uid, inventory) = load_inventory(client, resource).await.map_err(about)?;
    let (plan, warnings) = plan(resource, uid.unwrap_or_else(|| NO_UID.to_owned())).await?;
    let mut counts = Counts::default();
    let comparison = Comparison { client, plan: &plan, inventory: &inventory };
    let text = comparison.diff(&mut counts, color).await.map_err(about)?;
    Ok((warnings, Difference { text, counts }))
}

/// Sets the uid that a resource for the local cluster has there, since it owns its objects.
async fn set_uid(client: &Client, resource: &mut Knative) -> kube::Result<()> {
    if resource.common().cluster_profile_ref.is_some()
        || resource.meta().uid.as_ref().is_some_and(|uid| !uid.is_empty())
    {
        return Ok(());
    }
    let stored = metadata_api(client, resource).get_metadata_opt(resource.name()).await?;
    let uid = stored.and_then(|s| s.metadata.uid).unwrap_or_else(|| NO_UID.to_owned());
    match resource {
        Knative::Serving(serving) => serving.metadata.uid = Some(uid),
        Knative::Eventing(eventing) => eventing.metadata.uid = Some(uid),
    }
    Ok(())
}

/// The uid of the anchor, if it exists, and the inventory.
pub async fn load_inventory(client: &Client, resource: &Knative) -> Result<(Option<String>, Inventory), String> {
    let failed = |error| knative_operator_runtime::error_text(&error);
    let Some(stored) = InventoryStore::of(resource).load(client).await.map_err(failed)? else {
        return Ok((None, Inventory::default()));
    };
    Ok((Some(stored.anchor.uid.clone()), stored.inventory().map_err(failed)?))
}

#[derive(Default)]
struct Counts {
    created: usize,
    changed: usize,
    deleted: usize,
    same: usize,
}

impl Counts {
    fn add(&mut self, other: &Self) {
        self.created += other.created;
        self.changed += other.changed;
        self.deleted += other.deleted;
        self.same += other.same;
    }

    fn summary(&self) -> String {
        let Self { created, changed, deleted, same } = self;
        format!("{created} to create, {changed} to change, {deleted} to delete, {same} unchanged\n")
    }
}

struct Comparison<'a> {
    client: &'a Client,
    plan: &'a Plan,
    inventory: &'a Inventory,
}

/// An object before and after.
type States = (Option<Value>, Option<Value>);

impl Comparison<'_> {
    async fn diff(&self, counts: &mut Counts, color: bool) -> Result<String, String> {
        let mut text = String::new();
        let mut note = |id: &ObjectId, (before, after): States| {
            *match (&before, &after) {
                (None, Some(_)) => &mut counts.created,
                (Some(_), None) => &mut counts.deleted,
                (Some(a), Some(b)) if a != b => &mut counts.changed,
                _ => &mut counts.same,
            } += 1;
            text += &diff(&id.to_string(), before.as_ref(), after.as_ref(), color).unwrap_or_default();
        };
        let requests: Vec<_> = self.plan.items().iter().map(async |item| (item, self.item(item).await)).collect();
        let asked: Vec<_> = futures::stream::iter(requests).buffered(CONCURRENCY).collect().await;
        for (item, states) in asked {
            note(&item.id, states.map_err(|why| format!("{}: {why}", item.id))?);
        }
        for (id, entry) in
            self.inventory.entries.iter().filter(|(id, _)| !remove::is_retained(id) && self.plan.get(id).is_none())
        {
            let gvk = GroupVersionKind::gvk(&id.group, &entry.version, &id.kind);
            let live = match self.kind(&gvk).await? {
                Some(kind) => self.live(&kind, id).await?,
                None => None,
            };
            if let Some(live) = live {
                note(id, (Some(without_noise(&live)), None));
            }
        }
        Ok(text)
    }

    async fn kind(&self, gvk: &GroupVersionKind) -> Result<Option<Kind>, String> {
        knative_operator_apply::resolve_kind(self.client, self.plan.kinds(), gvk)
            .await
            .map_err(|e| knative_operator_runtime::error_text(&e))
    }

    fn api(&self, kind: &Kind, id: &ObjectId) -> Api<DynamicObject> {
        if kind.namespaced {
            Api::namespaced_with(self.client.clone(), &id.namespace, &kind.resource)
        } else {
            Api::all_with(self.client.clone(), &kind.resource)
        }
    }

    async fn live(&self, kind: &Kind, id: &ObjectId) -> Result<Option<Value>, String> {
        let load_inventory =
            self.api(kind, id).get_opt(&id.name).await.map_err(|e| knative_operator_runtime::error_text(&e))?;
        Ok(load_inventory.map(|o| json!(o)))
    }

    async fn item(&self, item: &Item) -> Result<States, String> {
        // An object of an unknown kind is created as planned.
        let planned = || Some(without_noise(&self.plan.object_of(item)));
        let Some(kind) = self.kind(&item.gvk).await? else { return Ok((None, planned())) };
        let live = self.live(&kind, &item.id).await?;
        if differ::runs_once(item) && (live.is_some() || self.inventory.entries.get(&item.id).is_some_and(|e| e.done)) {
            let live = live.as_ref().map(without_noise);
            return Ok((live.clone(), live));
        }
        let Some(mut live) = live else { return Ok((None, planned())) };
        let mut object = self.plan.object_of(item);
        object["metadata"]["annotations"][DIGEST] = json!(self.plan.digest(item).to_string());
        // Fields that its controllers wrote stay.
        let meta =
            serde_json::from_value(live["metadata"].clone()).map_err(|e| knative_operator_runtime::error_text(&e))?;
        preserve::copy_fields(&mut object, &mut live, &preserve::others_fields(&item.id.kind, &meta));
        let params = PatchParams { dry_run: true, ..PatchParams::apply(FIELD_MANAGER).force() };
        let api = self.api(&kind, &item.id);
        let apply = async |object: &Value| api.patch(&item.id.name, &params, &Patch::Apply(object)).await;
        let after = match (apply(&object).await, update_strategy::claiming_rolling_update(&object)) {
            // The operator applies such an object in two steps.
            (Err(kube::Error::Api(status)), Some(claiming)) if status.code == 422 => {
                apply(&claiming).await.map(|after| update_strategy::with_strategy_of(json!(after), &object))
            }
            (after, _) => after.map(|after| json!(after)),
        };
        let after = after.map_err(|e| knative_operator_runtime::error_text(&e))?;
        Ok((Some(without_noise(&live)), Some(without_noise(&after))))
    }
}
