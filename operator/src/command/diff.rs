//! `knative-operator diff`: what would change on a cluster, asked of the cluster itself (server-side dry run).

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use futures::StreamExt;
use knative_operator_runtime::hub::HubArgs;
use knative_operator_shared::api::Knative;
use knative_operator_shared::label::{DIGEST, FIELD_MANAGER};
use kube::api::{Patch, PatchParams};
use kube::core::{DynamicObject, GroupVersionKind};
use kube::{Api, Client};
use serde_json::{Value, json};

use super::render::Source;
use super::unified::{diff, shown};
use crate::apply::home::Home;
use crate::apply::inventory::Inventory;
use crate::apply::{self, differ, preserve, remove};
use crate::controller::report::metadata_api;
use crate::object::{Kind, ObjectId};
use crate::plan::{Item, Plan};

/// Objects that are asked for at once.
const CONCURRENCY: usize = 16;
/// Stands for the uid of an owner that isn't there yet.
const NOBODY: &str = "00000000-0000-0000-0000-000000000000";

/// Flags of `diff`.
#[derive(Clone, Debug, clap::Args)]
pub struct DiffArgs {
    #[command(flatten)]
    source: Source,
    /// The cluster that the component is installed on: the spoke itself where the resource has a clusterProfileRef.
    #[command(flatten)]
    target: HubArgs,
    /// Whether the output is coloured.
    #[arg(long, value_enum, default_value_t)]
    color: Color,
}

/// Whether output is coloured.
#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
enum Color {
    /// On a terminal.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

/// Prints the difference, and one line that counts. Exit status: 0 nothing would change, 1 something would, 2 an error.
pub fn run(args: &DiffArgs) -> ExitCode {
    let colour = match args.color {
        Color::Auto => std::io::stdout().is_terminal(),
        Color::Always => true,
        Color::Never => false,
    };
    let outcome = super::runtime().and_then(|runtime| runtime.block_on(changes(args, colour)));
    match outcome {
        Ok((text, changed)) => {
            super::print(&text);
            if changed { ExitCode::from(1) } else { ExitCode::SUCCESS }
        }
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(2)
        }
    }
}

async fn changes(args: &DiffArgs, colour: bool) -> Result<(String, bool), String> {
    let (mut resources, warnings) = args.source.resources()?;
    let client = args.target.client(FIELD_MANAGER).await.map_err(|e| knative_operator_runtime::words(&e))?;
    let mut told = warnings;
    let (mut text, mut counts) = (String::new(), Counts::default());
    for resource in &mut resources {
        own(&client, resource).await.map_err(|e| knative_operator_runtime::words(&e))?;
        let about = |message: String| format!("{} {}: {message}", resource.component(), resource.name());
        let (uid, inventory) = found(&client, resource).await.map_err(about)?;
        let rendered = args.source.plan(resource, uid.as_deref().unwrap_or(NOBODY)).await.map_err(about)?;
        told.extend(rendered.1);
        let target = Target { client: &client, plan: &rendered.0, inventory: &inventory };
        text += &target.diff(&mut counts, colour).await.map_err(about)?;
    }
    for warning in told {
        let _ = writeln!(std::io::stderr(), "warning: {warning}");
    }
    let Counts { created, changed, deleted, same } = counts;
    let summary = format!("{created} to create, {changed} to change, {deleted} to delete, {same} unchanged\n");
    text.push_str(&summary);
    Ok((text, created + changed + deleted > 0))
}

/// Gives a resource that is installed locally the uid that it has on the cluster: it owns its objects.
async fn own(client: &Client, resource: &mut Knative) -> kube::Result<()> {
    if resource.common().cluster_profile_ref.is_some()
        || resource.meta().uid.as_ref().is_some_and(|uid| !uid.is_empty())
    {
        return Ok(());
    }
    let stored = metadata_api(client, resource).get_metadata_opt(resource.name()).await?;
    let uid = stored.and_then(|s| s.metadata.uid).unwrap_or_else(|| NOBODY.to_owned());
    match resource {
        Knative::Serving(serving) => serving.metadata.uid = Some(uid),
        Knative::Eventing(eventing) => eventing.metadata.uid = Some(uid),
    }
    Ok(())
}

/// The uid of the anchor and the inventory, as far as there are any.
async fn found(client: &Client, resource: &Knative) -> Result<(Option<String>, Inventory), String> {
    let home = Home::of(resource).load(client).await.map_err(|e| knative_operator_runtime::words(&e))?;
    let (anchor, inventory) = home.map_or((None, Inventory::default()), |(uid, inventory)| (Some(uid), inventory));
    Ok((anchor, inventory))
}

#[derive(Default)]
struct Counts {
    created: usize,
    changed: usize,
    deleted: usize,
    same: usize,
}

struct Target<'a> {
    client: &'a Client,
    plan: &'a Plan,
    inventory: &'a Inventory,
}

/// An object as it is and as it would be.
type States = (Option<Value>, Option<Value>);

impl Target<'_> {
    async fn diff(&self, counts: &mut Counts, colour: bool) -> Result<String, String> {
        let mut text = String::new();
        let mut note = |id: &ObjectId, (before, after): States| {
            *match (&before, &after) {
                (None, Some(_)) => &mut counts.created,
                (Some(_), None) => &mut counts.deleted,
                (Some(a), Some(b)) if a != b => &mut counts.changed,
                _ => &mut counts.same,
            } += 1;
            text += &diff(&id.to_string(), before.as_ref(), after.as_ref(), colour).unwrap_or_default();
        };
        let asked = futures::stream::iter(self.plan.items()).map(|item| async move { (item, self.item(item).await) });
        let asked: Vec<_> = asked.buffered(CONCURRENCY).collect().await;
        for (item, states) in asked {
            note(&item.id, states.map_err(|why| format!("{}: {why}", item.id))?);
        }
        for (id, entry) in self.inventory.0.iter().filter(|(id, _)| !remove::kept(id) && self.plan.find(id).is_none()) {
            let gvk = GroupVersionKind::gvk(&id.group, &entry.version, &id.kind);
            let live = match self.kind(&gvk).await? {
                Some(kind) => self.live(&kind, id).await?,
                None => None,
            };
            if let Some(live) = live {
                note(id, (Some(shown(&live)), None));
            }
        }
        Ok(text)
    }

    async fn kind(&self, gvk: &GroupVersionKind) -> Result<Option<Kind>, String> {
        apply::address(self.client, self.plan.kinds(), gvk).await.map_err(|e| knative_operator_runtime::words(&e))
    }

    fn api(&self, kind: &Kind, id: &ObjectId) -> Api<DynamicObject> {
        if kind.namespaced {
            Api::namespaced_with(self.client.clone(), &id.namespace, &kind.resource)
        } else {
            Api::all_with(self.client.clone(), &kind.resource)
        }
    }

    async fn live(&self, kind: &Kind, id: &ObjectId) -> Result<Option<Value>, String> {
        let found = self.api(kind, id).get_opt(&id.name).await.map_err(|e| knative_operator_runtime::words(&e))?;
        Ok(found.map(|o| json!(o)))
    }

    async fn item(&self, item: &Item) -> Result<States, String> {
        // What the cluster doesn't know yet is created as it is planned.
        let planned = || Some(shown(&self.plan.open(item)));
        let Some(kind) = self.kind(&item.gvk).await? else { return Ok((None, planned())) };
        let live = self.live(&kind, &item.id).await?;
        if differ::once(item) && (live.is_some() || self.inventory.0.get(&item.id).is_some_and(|e| e.done)) {
            let live = live.as_ref().map(shown);
            return Ok((live.clone(), live));
        }
        let Some(mut live) = live else { return Ok((None, planned())) };
        let mut object = self.plan.open(item);
        object["metadata"]["annotations"][DIGEST] = json!(self.plan.digest(item).to_string());
        // What its own controllers have written stays.
        let meta = serde_json::from_value(live["metadata"].clone()).map_err(|e| knative_operator_runtime::words(&e))?;
        preserve::copy(&mut object, &mut live, &preserve::taken(&item.id.kind, &meta));
        let params = PatchParams { dry_run: true, ..PatchParams::apply(FIELD_MANAGER).force() };
        let after = self.api(&kind, &item.id).patch(&item.id.name, &params, &Patch::Apply(&object)).await;
        let after = after.map_err(|e| knative_operator_runtime::words(&e))?;
        Ok((Some(shown(&live)), Some(shown(&json!(after)))))
    }
}
