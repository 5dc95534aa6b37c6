//! `knative-operator fleet approve`: approves a stage, or a removal, that a person has seen.

use std::fmt::Write;
use std::process::ExitCode;

use knative_operator_fleet::revision::{Owner, Revision, RevisionData};
use knative_operator_rules::authorization::fleet_users;
use knative_operator_runtime::error_text;
use knative_operator_runtime::identity::post_as;
use knative_operator_shared::api::fleet::{RemovalPolicy, StageState};
use knative_operator_shared::api::{KnativeFleet, KnativeFleetStatus};
use knative_operator_shared::fleet::content::digest;
use knative_operator_shared::fleet::stage::REMOVAL;
use knative_operator_shared::label::{FLEET_VERSION, GROUP};
use knative_operator_shared::text::one_line;
use kube::core::DynamicObject;
use serde_json::json;

use super::super::terminal::{confirmed, needed};
use super::{Hub, PROGRAM, history};

/// End of a message that was shortened.
const SHORTENED: char = '…';

/// Flags of `fleet approve`.
#[derive(Clone, Debug, clap::Args)]
pub struct ApproveArgs {
    /// Name of the fleet.
    name: String,
    /// The stage. Defaults to the one that waits for an approval.
    #[arg(long)]
    stage: Option<String>,
    /// The revision, or the name of the removal, that was looked at: it is approved without asking,
    /// and another one is not.
    #[arg(long, value_name = "REVISION")]
    revision: Option<String>,
    /// Approves the blocked removal.
    #[arg(long, conflicts_with = "stage")]
    removal: bool,
    /// Approves what the fleet rolls out, or removes, at that time without asking.
    #[arg(short, long)]
    yes: bool,
}

/// Shows what an approval is for and asks, unless the arguments say it, then creates the approval:
/// if the fleet changes in the meantime, the webhook refuses it. Exit status: 0 approved, 1
/// declined, 2 error.
pub async fn approve(hub: &Hub, args: &ApproveArgs) -> Result<ExitCode, String> {
    let fleet = hub.fleet(&args.name).await?;
    let status = fleet.status.clone().unwrap_or_default();
    let (revision, stage) = if args.removal {
        (removal(&fleet, &status, args, &hub.namespace)?, REMOVAL.to_owned())
    } else {
        rollout(&status, args, &hub.namespace)?
    };
    let (uid, digest) = (fleet.metadata.uid.clone().unwrap_or_default(), digest(&fleet.spec));
    if args.revision.is_none() && !args.yes {
        needed("--revision REVISION, or --yes")?;
        let name = format!("KnativeFleet {}/{}", hub.namespace, args.name);
        let question = if args.removal {
            describe_removal(&name, &status, fleet.spec.removal.policy)?
        } else if status.rollout_digest.as_ref().is_some_and(|observed| *observed != digest) {
            return Err(format!("the operator has not observed the last change of {name} yet; try again in a moment"));
        } else {
            let owner = Owner { name: &args.name, uid: &uid, status: &status };
            let stored = history::revisions(hub, owner).await?.into_iter();
            let revisions: Vec<Revision> = stored.map(|(revision, _)| revision).collect();
            describe_rollout(&name, &status, (&revision, &stage), &revisions)?
        };
        if !confirmed(&question)? {
            return Ok(ExitCode::FAILURE);
        }
        // It says what happens to the clusters, and no digest has it.
        if args.removal && hub.fleet(&args.name).await?.spec.removal.policy != fleet.spec.removal.policy {
            return Err(format!("spec.removal.policy of {name} changed in the meantime; try again"));
        }
    }
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

/// The revision and the stage that `args` approve, of a fleet in `namespace`.
fn rollout(status: &KnativeFleetStatus, args: &ApproveArgs, namespace: &str) -> Result<(String, String), String> {
    let waiting = status.stages.iter().find(|stage| stage.state == StageState::AwaitingApproval);
    let stage = match &args.stage {
        Some(stage) if status.stages.iter().all(|other| other.name != *stage) => {
            let names: Vec<_> = status.stages.iter().map(|stage| stage.name.as_str()).collect();
            return Err(format!("there is no stage {stage}; the stages are {}", names.join(", ")));
        }
        Some(stage) => stage.clone(),
        None => waiting.ok_or("no stage waits for an approval")?.name.clone(),
    };
    let update = status.update_revision.clone().ok_or("the fleet has no revision yet")?;
    if let Some(seen) = args.revision.as_ref().filter(|seen| **seen != update) {
        return Err(format!(
            "the fleet rolls out revision {update} now, not {seen}; look at it with: knative-operator fleet status {} -n {namespace}",
            args.name
        ));
    }
    Ok((update, stage))
}

/// Name of the removal that `args` approve, of `fleet` in `namespace`.
fn removal(
    fleet: &KnativeFleet,
    status: &KnativeFleetStatus,
    args: &ApproveArgs,
    namespace: &str,
) -> Result<String, String> {
    if fleet.metadata.deletion_timestamp.is_some() {
        return Err(format!(
            "the fleet is being deleted; to confirm that: knative-operator fleet delete {} -n {namespace}",
            args.name
        ));
    }
    let (removal, _) = blocked_removal(status)?;
    if args.revision.as_ref().is_some_and(|seen| seen != removal) {
        return Err(format!("another removal is blocked now: {removal}"));
    }
    Ok(removal.to_owned())
}

/// Name of the blocked removal and the message about it, or why there is none.
fn blocked_removal(status: &KnativeFleetStatus) -> Result<(&str, &str), &'static str> {
    let condition = status.conditions.iter().find(|c| c.type_ == "RemovalBlocked" && c.status == "True");
    let message = condition.ok_or("no removal is blocked")?.message.as_deref().unwrap_or_default();
    // An earlier version of the operator leaves the name of an earlier removal there.
    let is_current = |name: &String| message.contains(name.as_str()) || message.ends_with(SHORTENED);
    let blocked = status.blocked_removal.as_ref().filter(|blocked| blocked.name.as_ref().is_none_or(is_current));
    let blocked = blocked.ok_or(
        "status.blockedRemoval is missing: an earlier version of the operator wrote the status; upgrade the operator, or \
         create the KnativeFleetApproval that the condition RemovalBlocked names",
    )?;
    let name = blocked.name.as_deref();
    Ok((name.ok_or("it is not recorded yet since when the clusters left; try again in a moment")?, message))
}

/// What the approval of the blocked removal of `fleet` is for, and the question.
fn describe_removal(fleet: &str, status: &KnativeFleetStatus, policy: RemovalPolicy) -> Result<String, &'static str> {
    let (removal, message) = blocked_removal(status)?;
    // What follows is how to approve it.
    let clusters = one_line(message.split("; ").next().unwrap_or(message));
    let what = match policy {
        RemovalPolicy::Delete => "Knative is uninstalled from them",
        RemovalPolicy::Orphan => "they leave the fleet, and keep Knative",
    };
    Ok(format!("{fleet}, removal {removal}\n{clusters}\nApprove that {what}? [y/N] "))
}

/// What the approval of a revision of `fleet` for a stage is for, and the question. `revisions` are
/// those that are stored.
fn describe_rollout(
    fleet: &str,
    status: &KnativeFleetStatus,
    (update, stage): (&str, &str),
    revisions: &[Revision],
) -> Result<String, String> {
    let find = |name: &str| revisions.iter().find(|revision| revision.name == name).map(|revision| &revision.data);
    let missing = || {
        format!("revision {update} is not stored, and can't be shown; to approve it all the same: --revision {update}")
    };
    let data = find(update).ok_or_else(missing)?;
    let current = status.current_revision.as_deref();
    let before = current.and_then(find);
    let against = match (current, before) {
        (None, _) => "the first rollout, with all fields:".to_owned(),
        (Some(current), None) => {
            format!("all fields, since revision {current}, which was rolled out completely last, is not stored:")
        }
        (Some(current), Some(_)) => format!("changes after revision {current}, which was rolled out completely last:"),
    };
    let mut text = format!("{fleet}, revision {update}: {}\n", one_line(&history::versions(data)));
    // Writing to a String can't fail.
    if let Some(user) = &status.requested_by {
        let _ = writeln!(text, "requested by {}", fleet_users::shown(user));
    }
    let mut changes = history::changes(before.unwrap_or(&RevisionData::default()), data);
    if changes.is_empty() {
        changes.push_str("  no template or override changes\n");
    }
    changes.push_str("placement, stages and gates as they are now: they are not compared\n");
    let clusters = status.stages.iter().find(|other| other.name == stage).map_or(0, |stage| stage.clusters);
    let _ = write!(text, "{against}\n{changes}Approve it for stage {} (clusters: {clusters})? [y/N] ", one_line(stage));
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn blocked(is_blocked: &str, removal: &Value, message: &str) -> KnativeFleetStatus {
        let conditions = json!([{"type": "RemovalBlocked", "status": is_blocked, "message": message}]);
        serde_json::from_value(json!({"conditions": conditions, "blockedRemoval": removal})).unwrap()
    }

    #[test]
    fn commands_in_errors_name_the_fleet_and_its_namespace() {
        let status = json!({"updateRevision": "prod-2", "stages": [{"name": "rest", "state": "AwaitingApproval"}]});
        let status: KnativeFleetStatus = serde_json::from_value(status).unwrap();
        let args = ApproveArgs {
            name: "prod".to_owned(),
            stage: None,
            revision: Some("prod-1".to_owned()),
            removal: false,
            yes: false,
        };
        let error = rollout(&status, &args, "platform").unwrap_err();
        assert!(error.ends_with(": knative-operator fleet status prod -n platform"), "{error}");
    }

    #[test]
    fn blocked_removal_is_the_one_in_the_status() {
        let of = |is_blocked: &str, removal: &Value, message: &str| {
            let status = blocked(is_blocked, removal, message);
            blocked_removal(&status).map(|(name, _)| name.to_owned())
        };
        let (removal, message) = (json!({"name": "12ab", "clusters": 3, "limit": 1}), "3 clusters; revision 12ab and");
        assert_eq!(of("True", &removal, message).as_deref(), Ok("12ab"));
        assert_eq!(of("True", &removal, "a, b; create …").as_deref(), Ok("12ab"), "the message was shortened");
        assert_eq!(of("False", &removal, message), Err("no removal is blocked"));
        let unnamed = json!({"clusters": 3, "limit": 1});
        assert!(of("True", &unnamed, message).is_err_and(|why| why.contains("try again in a moment")));
        // As an earlier version wrote it: without the field, or with what was there.
        for (removal, message) in [(&Value::Null, message), (&removal, "3 clusters; revision 34cd and")] {
            assert!(of("True", removal, message).is_err_and(|why| why.contains("upgrade the operator")), "{removal}");
        }
    }

    #[test]
    fn removal_is_shown() {
        let message = "3 clusters would leave the fleet: f/a, f/b\nand 1 more; create one for revision 12ab and";
        let status = blocked("True", &json!({"name": "12ab", "clusters": 3, "limit": 1}), message);
        let start =
            "KnativeFleet n/prod, removal 12ab\n3 clusters would leave the fleet: f/a, f/b and 1 more\nApprove that ";
        for (policy, end) in [
            (RemovalPolicy::Delete, "Knative is uninstalled from them? [y/N] "),
            (RemovalPolicy::Orphan, "they leave the fleet, and keep Knative? [y/N] "),
        ] {
            assert_eq!(describe_removal("KnativeFleet n/prod", &status, policy), Ok(format!("{start}{end}")));
        }
    }

    #[test]
    fn rollout_is_shown_with_its_changes() {
        let revision = |version: &str| {
            let data = json!({"serving": {"spec": {"version": version}}});
            let data = serde_json::from_value(data).unwrap();
            let (name, label) = (format!("prod-{version}"), "prod".to_owned());
            Revision { name, number: 1, failed_generation: None, owner: None, label, data }
        };
        let text = |current: Option<&str>, revisions: &[Revision]| {
            let status = json!({"currentRevision": current, "updateRevision": "prod-1.23.0", "requestedBy": "jane\nroot",
                "stages": [{"name": "rest", "state": "AwaitingApproval", "clusters": 7}]});
            let status = serde_json::from_value(status).unwrap();
            describe_rollout("KnativeFleet n/prod", &status, ("prod-1.23.0", "rest"), revisions)
        };
        let both = [revision("1.22.0"), revision("1.23.0")];
        let start = "KnativeFleet n/prod, revision prod-1.23.0: KnativeServing 1.23.0\nrequested by jane root\n";
        let end = "placement, stages and gates as they are now: they are not compared\n\
                   Approve it for stage rest (clusters: 7)? [y/N] ";
        let last = "which was rolled out completely last";
        let added = r#"  spec.serving: {"metadata":{},"spec":{"version":"1.23.0"}} is added"#;
        for (current, shown) in [
            (
                Some("prod-1.22.0"),
                format!(
                    "changes after revision prod-1.22.0, {last}:\n  spec.serving.spec.version: \"1.22.0\" to \"1.23.0\""
                ),
            ),
            (
                Some("prod-1.23.0"),
                format!("changes after revision prod-1.23.0, {last}:\n  no template or override changes"),
            ),
            (Some("prod-1"), format!("all fields, since revision prod-1, {last}, is not stored:\n{added}")),
            (None, format!("the first rollout, with all fields:\n{added}")),
        ] {
            assert_eq!(text(current, &both), Ok(format!("{start}{shown}\n{end}")));
        }
        let missing = text(None, &both[..1]).unwrap_err();
        assert!(missing.contains("--revision prod-1.23.0"), "{missing}");
    }
}
