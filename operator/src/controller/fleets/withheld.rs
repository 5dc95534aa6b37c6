//! What the API server does not store of a fleet, so that its update is not rolled out: the update
//! revision, such as because somebody created another ControllerRevision with its name, or the
//! finalizer. Everything else goes on, and the status says so.

use knative_operator_shared::api::KnativeFleet;
use knative_operator_shared::label::FLEET_FINALIZER;
use serde_json::Value;

use super::write::{self, WriteError};
use crate::controller::context::Context;
use knative_operator_fleet::decision::{Decision, Input};
use knative_operator_fleet::member::{Change, Contents};
use knative_operator_fleet::revision::{self, RevisionData, Revisions};

/// Why the update of a fleet is not rolled out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Withheld {
    /// Its revision is not stored, for this reason.
    Revision(String),
    /// The fleet has no finalizer, for this reason: its deletion would uninstall what it installs,
    /// and nobody would be asked.
    Finalizer(String),
}

impl Withheld {
    /// The reason of the conditions.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::Revision(_) => "RevisionNotStored",
            Self::Finalizer(_) => "FinalizerNotStored",
        }
    }

    /// What is wrong.
    pub fn message(&self) -> &str {
        match self {
            Self::Revision(message) | Self::Finalizer(message) => message,
        }
    }
}

/// Adds the finalizer to `fleet`, if it has none. Returns what is wrong if that fails.
///
/// # Errors
///
/// If the fleet changed: it is read again.
pub async fn keep_finalizer(cx: &Context, fleet: &KnativeFleet) -> Result<Option<Withheld>, WriteError> {
    let mut finalizers = fleet.metadata.finalizers.clone().unwrap_or_default();
    if finalizers.iter().any(|finalizer| finalizer == FLEET_FINALIZER) {
        return Ok(None);
    }
    finalizers.push(FLEET_FINALIZER.to_owned());
    let why = match write::finalizers(&cx.hub, fleet, &finalizers).await {
        Ok(()) => return Ok(None),
        Err(WriteError::Refused(why) | WriteError::Throttled(why) | WriteError::Other(why)) => why,
        Err(conflict @ WriteError::Conflict(_)) => return Err(conflict),
    };
    Ok(Some(Withheld::Finalizer(format!(
        "the finalizer {FLEET_FINALIZER} can't be added to the fleet, so nothing is rolled out: {why}"
    ))))
}

/// Stores the revision `update` of a fleet, unless it is among `revisions`. Returns what is wrong
/// if the API server refuses it: it refuses to change another object with this name.
pub async fn store_revision(
    cx: &Context,
    fleet: (&str, &str, &Value),
    revisions: &Revisions,
    (update, data): (&str, &RevisionData),
) -> Result<Option<Withheld>, WriteError> {
    if revisions.contains_key(update) {
        return Ok(None);
    }
    let manifest = revision::manifest(fleet, update, data, revision::next_number(revisions.values()));
    match write::store_revision(&cx.hub, &manifest).await {
        Err(WriteError::Refused(why)) => Ok(Some(Withheld::Revision(describe(&manifest, &why)))),
        stored => stored.map(|()| None),
    }
}

fn describe(manifest: &Value, why: &str) -> String {
    let text = |field: &str| manifest["metadata"][field].as_str().unwrap_or_default();
    let (namespace, name) = (text("namespace"), text("name"));
    format!(
        "ControllerRevision {namespace}/{name} can't be stored, so the revision is not rolled out: {why}; if somebody else created it, \
         delete it: kubectl delete controllerrevision {name} -n {namespace}"
    )
}

/// Decides, without what rolls the update revision out if it is `withheld`.
pub fn decide<C: Contents>(input: &Input<'_, C>, withheld: Option<&Withheld>) -> Decision {
    let mut decision = input.decide();
    if let Some(withheld) = withheld {
        withhold(&mut decision, input.update, withheld);
    }
    decision
}

fn withhold(decision: &mut Decision, update: &str, withheld: &Withheld) {
    decision.writes.retain(|write| match &write.change {
        // Without the finalizer, new clusters get no earlier revision either.
        Change::Apply { revision, .. } => matches!(withheld, Withheld::Revision(_)) && revision != update,
        Change::Delete => false,
        Change::Record(_) | Change::Repair { .. } => true,
    });
    (decision.is_complete, decision.mark_failed) = (false, false);
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::{ClusterProfileReference, Component};
    use serde_json::json;

    use super::*;
    use knative_operator_fleet::member::Write;
    use knative_operator_fleet::outcome::Outcome;

    #[test]
    fn only_the_update_waits() {
        let write = |change| Write {
            cluster: ClusterProfileReference { name: "a".to_owned(), namespace: "f".to_owned() },
            component: Component::Serving,
            change,
        };
        let apply = |revision: &str| {
            write(Change::Apply {
                revision: revision.to_owned(),
                previous: None,
                version: None,
                outcome: Outcome::Progressing { was_ready: true },
            })
        };
        let repair = write(Change::Repair { revision: "new".to_owned(), version: None });
        let record = write(Change::Record(Outcome::Succeeded));
        let writes = vec![apply("new"), apply("old"), write(Change::Delete), repair.clone(), record.clone()];
        let all = Decision { writes, is_complete: true, mark_failed: true, ..Decision::default() };
        let without = |withheld: &Withheld| {
            let mut decision = all.clone();
            withhold(&mut decision, "new", withheld);
            decision
        };
        let others = vec![apply("old"), repair.clone(), record.clone()];
        for (withheld, writes) in
            [(Withheld::Revision(String::new()), others), (Withheld::Finalizer(String::new()), vec![repair, record])]
        {
            assert_eq!(without(&withheld), Decision { writes, ..Decision::default() }, "{withheld:?}");
        }
        let text = describe(&json!({"metadata": {"namespace": "n", "name": "prod-1"}}), "data: field is immutable");
        assert!(text.starts_with("ControllerRevision n/prod-1 can't be stored"), "{text}");
        assert!(text.ends_with("kubectl delete controllerrevision prod-1 -n n"), "{text}");
    }
}
