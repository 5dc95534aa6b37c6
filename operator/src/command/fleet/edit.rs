//! `knative-operator fleet approve`, `pause`, `resume` and `rollback`.

use std::process::ExitCode;

use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::{patch_as, post_as};
use knative_operator_shared::api::fleet::StageState;
use knative_operator_shared::api::{KnativeFleet, KnativeFleetStatus};
use knative_operator_shared::authorization::fleet_users;
use knative_operator_shared::fleet::content::digest;
use knative_operator_shared::fleet::deletion;
use knative_operator_shared::fleet::stage::REMOVAL;
use knative_operator_shared::label::{CONFIRM_REMOVAL, FLEET_VERSION, GROUP, PAUSE_REASON};
use kube::api::Patch;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::super::terminal::confirmed;
use super::{Hub, PROGRAM, history, parse};
use knative_operator_fleet::revision::{Owner, RevisionData};

/// Flags of `fleet approve`.
#[derive(Clone, Debug, clap::Args)]
pub struct ApproveArgs {
    /// Name of the fleet.
    name: String,
    /// The stage. Defaults to the one that waits for an approval.
    #[arg(long)]
    stage: Option<String>,
    /// The revision, or the name of the removal, that was looked at: another one is not approved.
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// Approves the blocked removal.
    #[arg(long, conflicts_with = "stage")]
    removal: bool,
}

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

/// Creates an approval of what the fleet rolls out now: if it changes in the meantime, the webhook
/// refuses the approval.
pub async fn approve(hub: &Hub, args: &ApproveArgs) -> Result<ExitCode, String> {
    let fleet = hub.fleet(&args.name).await?;
    let (uid, digest, status) = (fleet.metadata.uid, digest(&fleet.spec), fleet.status.unwrap_or_default());
    let (revision, stage) = if args.removal {
        if fleet.metadata.deletion_timestamp.is_some() {
            return Err(format!(
                "the fleet is being deleted; to confirm that: knative-operator fleet delete {}",
                args.name
            ));
        }
        let removal = blocked_removal(&status)?;
        if args.revision.as_ref().is_some_and(|seen| *seen != removal) {
            return Err(format!("another removal is blocked now: {removal}"));
        }
        (removal, REMOVAL.to_owned())
    } else {
        let waiting = status.stages.iter().find(|stage| stage.state == StageState::AwaitingApproval);
        let stage = match &args.stage {
            Some(stage) if status.stages.iter().all(|other| other.name != *stage) => {
                let names: Vec<_> = status.stages.iter().map(|stage| stage.name.as_str()).collect();
                return Err(format!("there is no stage {stage}; the stages are {}", names.join(", ")));
            }
            Some(stage) => stage.clone(),
            None => waiting.ok_or("no stage waits for an approval")?.name.clone(),
        };
        let update = status.update_revision.ok_or("the fleet has no revision yet")?;
        if let Some(seen) = args.revision.as_ref().filter(|seen| **seen != update) {
            return Err(format!(
                "the fleet rolls out revision {update} now, not {seen}; look at it with: knative-operator fleet status {}",
                args.name
            ));
        }
        (update, stage)
    };
    let approval = json!({"apiVersion": format!("{GROUP}/{FLEET_VERSION}"), "kind": "KnativeFleetApproval",
        "metadata": {"generateName": format!("{}-", args.name), "namespace": hub.namespace},
        "spec": {"fleet": args.name, "revision": revision, "stage": stage, "fleetUID": uid, "digest": digest}});
    let object: DynamicObject = serde_json::from_value(approval).map_err(|error| error.to_string())?;
    let params = post_as(PROGRAM);
    let created = hub.untyped("KnativeFleetApproval", "knativefleetapprovals").create(&params, &object).await;
    let created = created.map_err(|error| error_text(&error))?;
    let user = created.data["spec"]["username"].as_str().map(|user| format!(" by {user}")).unwrap_or_default();
    hub.print(&format!("revision {revision} approved for stage {stage}{user}\n"), &json!(created));
    Ok(ExitCode::SUCCESS)
}

/// Name of the blocked removal, or why there is none.
fn blocked_removal(status: &KnativeFleetStatus) -> Result<String, &'static str> {
    if !status.conditions.iter().any(|c| c.type_ == "RemovalBlocked" && c.status == "True") {
        return Err("no removal is blocked");
    }
    let blocked = status.blocked_removal.as_ref().ok_or(
        "status.blockedRemoval is missing: an earlier version of the operator wrote the status; upgrade the operator, or \
         create the KnativeFleetApproval that the condition RemovalBlocked names",
    )?;
    blocked.name.clone().ok_or("it is not recorded yet since when the clusters left; try again in a moment")
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
    let revision = match (&args.to_revision, last) {
        (Some(to), _) => revisions.find(|r| r.name == *to || r.number.to_string() == *to),
        (None, Some(last)) => revisions.find(|r| r.name == *last),
        (None, None) => return Err("no other revision was rolled out completely; choose one of `knative-operator fleet history`: --to-revision".to_owned()),
    };
    let revision = revision.ok_or("there is no such revision; see `knative-operator fleet history`")?;
    let (dropped, changed) = return_to(&mut object.clone(), &revision.data, &before)?;
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
/// what it uninstalls, and a line for each template that changes.
fn return_to(
    object: &mut DynamicObject,
    revision: &RevisionData,
    before: &KnativeFleet,
) -> Result<(String, String), String> {
    let spec = object.data.get_mut("spec").and_then(Value::as_object_mut).ok_or("the fleet has no spec")?;
    let (data, mut changed) = (json!(revision.pinned()), String::new());
    for field in ["serving", "eventing", "overrides"] {
        let old = match data.get(field) {
            Some(value) => spec.insert(field.to_owned(), value.clone()),
            None => spec.remove(field),
        };
        let [old, new] = [old.as_ref(), spec.get(field)].map(|value| value.unwrap_or(&Value::Null));
        for change in json_patch::diff(old, new).iter() {
            changed.extend(["  spec.", field, &change.path().to_string().replace('/', "."), " changes\n"]);
        }
    }
    Ok((confirm_drops(object, before)?, changed))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_removal_is_the_one_in_the_status() {
        let of = |is_blocked: &str, removal: Value| {
            let conditions = json!([{"type": "RemovalBlocked", "status": is_blocked, "message": "for revision other"}]);
            let status = json!({"conditions": conditions, "blockedRemoval": removal});
            blocked_removal(&serde_json::from_value(status).unwrap())
        };
        let removal = json!({"name": "12ab", "clusters": 3, "limit": 1});
        assert_eq!(of("True", removal.clone()).as_deref(), Ok("12ab"));
        assert_eq!(of("False", removal), Err("no removal is blocked"));
        assert!(of("True", json!({"clusters": 3, "limit": 1})).is_err_and(|why| why.contains("try again in a moment")));
        // As an earlier version wrote it.
        assert!(of("True", Value::Null).is_err_and(|why| why.contains("upgrade the operator")));
    }
}
