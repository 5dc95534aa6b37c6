//! An update revision that the API server does not store, such as because somebody created another
//! ControllerRevision with its name. It is not rolled out; everything else goes on.

use serde_json::Value;

use super::write::{self, WriteError};
use crate::controller::context::Context;
use knative_operator_fleet::decision::{Decision, Input};
use knative_operator_fleet::member::{Change, Contents};
use knative_operator_fleet::revision::{self, RevisionData, Revisions};

/// Stores the revision `update` of a fleet, unless it is among `revisions`. Returns what is wrong
/// if the API server refuses it: it refuses to change another object with this name.
pub async fn store(
    cx: &Context,
    fleet: (&str, &str, &Value),
    revisions: &Revisions,
    (update, data): (&str, &RevisionData),
) -> Result<Option<String>, WriteError> {
    if revisions.contains_key(update) {
        return Ok(None);
    }
    let manifest = revision::manifest(fleet, update, data, revision::next_number(revisions.values()));
    match write::store_revision(&cx.hub, &manifest).await {
        Err(WriteError::Refused(why)) => Ok(Some(describe(&manifest, &why))),
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

/// Decides, without what rolls the update revision out if it is not stored.
pub fn decide<C: Contents>(input: &Input<'_, C>, is_stored: bool) -> Decision {
    let mut decision = input.decide();
    if !is_stored {
        withhold(&mut decision, input.update);
    }
    decision
}

fn withhold(decision: &mut Decision, update: &str) {
    decision.writes.retain(|write| match &write.change {
        Change::Apply { revision, .. } => revision != update,
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
        let mut decision = Decision { writes, is_complete: true, mark_failed: true, ..Decision::default() };
        withhold(&mut decision, "new");
        let expected = Decision { writes: vec![apply("old"), repair, record], ..Decision::default() };
        assert_eq!(decision, expected);
        let text = describe(&json!({"metadata": {"namespace": "n", "name": "prod-1"}}), "data: field is immutable");
        assert!(text.starts_with("ControllerRevision n/prod-1 can't be stored"), "{text}");
        assert!(text.ends_with("kubectl delete controllerrevision prod-1 -n n"), "{text}");
    }
}
