//! `knative-operator fleet pause`, `resume` and `rollback`.

use std::process::ExitCode;

use knative_operator_rules::authorization::fleet_users;
use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::{patch_as, post_as};
use knative_operator_shared::api::KnativeFleet;
use knative_operator_shared::fleet::deletion;
use knative_operator_shared::label::{CONFIRM_REMOVAL, PAUSE_REASON};
use kube::api::Patch;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::super::terminal::confirmed;
use super::{Hub, PROGRAM, history, parse};
use knative_operator_fleet::revision::{Owner, RevisionData};

/// Flags of `fleet rollback`.
#[derive(Clone, Debug, clap::Args)]
pub struct RollbackArgs {
    /// Name of the fleet.
    name: String,
    /// Name or number of the revision. Defaults to the one that was rolled out completely last, or
    /// if that is the current one, to the one before.
    #[arg(long, visible_alias = "to", value_name = "REVISION")]
    to_revision: Option<String>,
    /// Rolls back without asking.
    #[arg(short, long)]
    yes: bool,
}

/// Pauses the rollout for a reason, or resumes it.
pub async fn set_paused(hub: &Hub, name: &str, paused: bool, reason: Option<&str>) -> Result<ExitCode, String> {
    let fleet = hub.fleet(name).await?;
    if paused && fleet.spec.rollout.paused && reason.is_none() {
        let annotations = fleet.metadata.annotations.unwrap_or_default();
        let why = fleet_users::describe(|name| annotations.get(name).map(String::as_str));
        return Err(format!(
            "KnativeFleet {}/{name} is paused already: {why}; to pause it yourself, give a --reason",
            hub.namespace
        ));
    }
    let mut patch = json!({"spec": {"rollout": {"paused": paused}}});
    // The webhook removes a reason with the pause; it may have been away.
    if reason.is_some() || !paused {
        patch["metadata"]["annotations"][PAUSE_REASON] = json!(reason);
    }
    let fleets = hub.untyped("KnativeFleet", "knativefleets");
    let patched = fleets.patch(name, &patch_as(PROGRAM), &Patch::Merge(patch)).await;
    let patched = patched.map_err(|error| error_text(&error))?;
    let word = if paused { "paused" } else { "resumed" };
    hub.print(&format!("KnativeFleet {}/{name} {word}\n", hub.namespace), &json!(patched));
    Ok(ExitCode::SUCCESS)
}

/// Sets the templates and overrides to those of an earlier revision. Exit status: 0 changed, 1
/// declined, 2 error.
pub async fn roll_back(hub: &Hub, args: &RollbackArgs) -> Result<ExitCode, String> {
    let fleets = hub.untyped("KnativeFleet", "knativefleets");
    let missing = || format!("KnativeFleet {}/{} does not exist", hub.namespace, args.name);
    let stored = fleets.get_opt(&args.name).await.map_err(|error| error_text(&error))?;
    let mut object = stored.ok_or_else(missing)?;
    let before = parse(&json!(object))?;
    let status = before.status.clone().unwrap_or_default();
    let uid = object.metadata.uid.clone().unwrap_or_default();
    let stored = history::revisions(hub, Owner { name: &args.name, uid: &uid, status: &status }).await?;
    let mut revisions = stored.into_iter().map(|(revision, _)| revision);
    let is_current = status.current_revision == status.update_revision;
    // The last one that was rolled out completely: others may be broken.
    let last = if is_current { &status.previous_revision } else { &status.current_revision };
    let listed = format!("`knative-operator fleet history {} -n {}`", args.name, hub.namespace);
    let revision = match (&args.to_revision, last) {
        (Some(to), _) => revisions.find(|r| r.name == *to || r.number.to_string() == *to),
        (None, Some(last)) => revisions.find(|r| r.name == *last),
        (None, None) => {
            return Err(format!(
                "no other revision was rolled out completely; choose one of those that {listed} lists: --to-revision"
            ));
        }
    };
    let revision = revision.ok_or_else(|| format!("there is no such revision; {listed} lists them"))?;
    let dropped = return_to(&mut object.clone(), &revision.data, &before)?;
    let changed = history::changes(&RevisionData::of(&before.spec), &revision.data);
    let fleet = format!("KnativeFleet {}/{}", hub.namespace, args.name);
    let what = format!("revision {}: {}{dropped}", revision.name, history::versions(&revision.data));
    let question = format!("{changed}Roll {fleet} back to {what}? [y/N] ");
    if !args.yes && !confirmed(&question)? {
        return Ok(ExitCode::FAILURE);
    }
    let generation = object.metadata.generation;
    let replaced = loop {
        // Somebody may have changed other things meanwhile, such as annotations.
        object = fleets.get(&args.name).await.map_err(|error| error_text(&error))?;
        if object.metadata.generation != generation || object.metadata.uid.as_deref() != Some(&uid) {
            return Err(format!("{fleet} was changed meanwhile; look at it, and try again"));
        }
        return_to(&mut object, &revision.data, &before)?;
        match fleets.replace(&args.name, &post_as(PROGRAM), &object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            replaced => break replaced.map_err(|error| error_text(&error))?,
        }
    };
    hub.print(&format!("{fleet} has the templates of {what}\n"), &json!(replaced));
    Ok(ExitCode::SUCCESS)
}

/// Gives `object` the templates and overrides of `revision`, and confirms what that drops. Returns
/// what it uninstalls.
fn return_to(object: &mut DynamicObject, revision: &RevisionData, before: &KnativeFleet) -> Result<String, String> {
    let spec = object.data.get_mut("spec").and_then(Value::as_object_mut).ok_or("the fleet has no spec")?;
    let data = json!(revision.pinned());
    for field in ["serving", "eventing", "overrides"] {
        match data.get(field) {
            Some(value) => spec.insert(field.to_owned(), value.clone()),
            None => spec.remove(field),
        };
    }
    confirm_drops(object, before)
}

/// Confirms that `object` lacks components that the fleet had `before`: a rollback asks for it.
/// Returns what that uninstalls.
fn confirm_drops(object: &mut DynamicObject, before: &KnativeFleet) -> Result<String, String> {
    let after = parse(&json!(object))?;
    let clusters = deletion::installed(&json!(before.status));
    let mut texts = Vec::new();
    for component in before.spec.dropped_by(&after.spec) {
        texts.push(format!(", without {component}, which is uninstalled from up to {clusters} clusters"));
        let annotations = object.metadata.annotations.get_or_insert_default();
        let confirmed = |number: usize| format!("{}={number}", deletion::field(component));
        // One that is there already is of another time.
        let is_there = annotations.get(CONFIRM_REMOVAL) == Some(&confirmed(clusters));
        annotations.insert(CONFIRM_REMOVAL.to_owned(), confirmed(clusters + usize::from(is_there)));
    }
    Ok(texts.concat())
}
