//! `knative-operator fleet approve`, `pause`, `resume` and `rollback`.

use std::process::ExitCode;

use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::{patch_as, post_as};
use knative_operator_shared::api::fleet::StageState;
use knative_operator_shared::api::{KnativeFleet, KnativeFleetStatus};
use knative_operator_shared::fleet::content::digest;
use knative_operator_shared::fleet::deletion;
use knative_operator_shared::fleet::stage::REMOVAL;
use knative_operator_shared::label::{CONFIRM_REMOVAL, FLEET_VERSION, GROUP};
use kube::api::Patch;
use kube::core::DynamicObject;
use serde_json::{Value, json};

use super::{Hub, PROGRAM, history, parse};
use knative_operator_fleet::revision::Owner;

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
    /// Whether to approve the blocked removal.
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
    #[arg(long, value_name = "REVISION")]
    to_revision: Option<String>,
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
        let removal = blocked_removal(&status).ok_or("no removal is blocked")?;
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

/// Name of the blocked removal.
fn blocked_removal(status: &KnativeFleetStatus) -> Option<String> {
    let condition = status.conditions.iter().find(|c| c.type_ == "RemovalBlocked" && c.status == "True")?;
    let message = condition.message.as_deref()?;
    let (_, rest) = message.rsplit_once("for revision ")?;
    rest.split(' ').next().map(str::to_owned)
}

/// Pauses or resumes the rollout.
pub async fn set_paused(hub: &Hub, name: &str, paused: bool) -> Result<ExitCode, String> {
    hub.fleet(name).await?;
    let patch = json!({"spec": {"rollout": {"paused": paused}}});
    let fleets = hub.untyped("KnativeFleet", "knativefleets");
    let patched = fleets.patch(name, &patch_as(PROGRAM), &Patch::Merge(patch)).await;
    let patched = patched.map_err(|error| error_text(&error))?;
    let word = if paused { "paused" } else { "resumed" };
    hub.print(&format!("KnativeFleet {}/{name} {word}\n", hub.namespace), &json!(patched));
    Ok(ExitCode::SUCCESS)
}

/// Sets the templates and overrides to those of an earlier revision.
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
    let spec = object.data.get_mut("spec").and_then(Value::as_object_mut).ok_or("the fleet has no spec")?;
    let data = json!(revision.data.pinned());
    for field in ["serving", "eventing", "overrides"] {
        match data.get(field) {
            Some(value) => drop(spec.insert(field.to_owned(), value.clone())),
            None => drop(spec.remove(field)),
        }
    }
    let dropped = confirm_drops(&mut object, &before)?;
    let replaced = replace(hub, &args.name, object).await?;
    let text = format!(
        "KnativeFleet {}/{} has the templates of revision {}{dropped}\n",
        hub.namespace, args.name, revision.name
    );
    hub.print(&text, &json!(replaced));
    Ok(ExitCode::SUCCESS)
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

/// Replaces the fleet with `object`. The operator may write the status in the meantime; if somebody
/// else changes the spec, fails.
async fn replace(hub: &Hub, name: &str, mut object: DynamicObject) -> Result<DynamicObject, String> {
    let fleets = hub.untyped("KnativeFleet", "knativefleets");
    let params = post_as(PROGRAM);
    loop {
        let error = match fleets.replace(name, &params, &object).await {
            Ok(replaced) => return Ok(replaced),
            Err(error) => error,
        };
        let is_conflict = matches!(&error, kube::Error::Api(status) if status.code == 409);
        let now = fleets.get(name).await.map_err(|error| error_text(&error))?.metadata;
        let is_same = now.generation == object.metadata.generation && now.uid == object.metadata.uid;
        if !is_conflict || !is_same {
            return Err(error_text(&error));
        }
        object.metadata.resource_version = now.resource_version;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocked_removal_is_named_in_the_condition() {
        let status = |status: &str| -> KnativeFleetStatus {
            let message = "3 clusters would leave the fleet, more than 1: a/b; correct the placement, or create a KnativeFleetApproval for revision 12ab and stage removal";
            serde_json::from_value(
                json!({"conditions": [{"type": "RemovalBlocked", "status": status, "message": message}]}),
            )
            .unwrap()
        };
        assert_eq!(blocked_removal(&status("True")).as_deref(), Some("12ab"));
        assert_eq!(blocked_removal(&status("False")), None);
    }
}
