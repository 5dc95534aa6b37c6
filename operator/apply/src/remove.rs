//! Deletes the objects of an inventory in reverse phases, except for CRDs and what others applied.

use futures::StreamExt;
use kube::Client;
use kube::api::{DeleteParams, Preconditions, PropagationPolicy};
use kube::core::ObjectMeta;

use super::error::ApplyError;
use super::inventory::{Entry, Inventory};
use super::proof::Proof;
use super::{CONCURRENCY, Objects, api, resolve_applied};
use knative_operator_objects::Kinds;
use knative_operator_objects::ObjectId;
use knative_operator_objects::plan::Phase;

/// API groups whose objects are never part of an installation: those of the operator, on a hub.
pub const NEVER: [&str; 2] = ["operator.knative.dev", "multicluster.x-k8s.io"];
/// Attempts to delete an object that changes all the time.
const ATTEMPTS: usize = 5;

/// What became of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// It is gone.
    Gone,
    /// It is terminating.
    Terminating,
    /// It is not part of the installation, for this reason, and is left as it is.
    Left(&'static str),
}

/// Progress of a deletion.
#[derive(Debug, Default)]
pub struct DeletionProgress {
    /// Objects that are terminating.
    pub remaining: Vec<ObjectId>,
    /// Objects that are left, since they are not part of the installation, with the reason.
    pub left: Vec<(ObjectId, &'static str)>,
    /// Objects that can't be deleted, with the reason.
    pub refused: Vec<(ObjectId, ApplyError)>,
}

/// Whether an object is never deleted here: custom resources of users depend on CRDs, and the
/// inventory store deletes the namespace.
pub fn is_retained(id: &ObjectId) -> bool {
    matches!(id.kind.as_str(), "CustomResourceDefinition" | "Namespace")
}

/// Deletes the last phase in `inventory` and drops the entries of objects that are gone or left.
/// Call it again until nothing remains.
pub async fn delete_last_phase(
    client: &Client,
    kinds: &Kinds,
    proof: &Proof,
    inventory: &mut Inventory,
) -> DeletionProgress {
    let mut removed = DeletionProgress::default();
    while let Some(last) = inventory.entries.iter().filter(|(id, _)| !is_retained(id)).map(deletion_order).max() {
        let due =
            inventory.entries.iter().filter(|(id, entry)| !is_retained(id) && deletion_order((id, entry)) == last);
        let due = due.map(|(id, entry)| (id.clone(), entry.clone())).collect();
        for (id, outcome) in delete(client, kinds, proof, due).await {
            match outcome {
                Ok(Deletion::Gone) => drop(inventory.entries.remove(&id)),
                Ok(Deletion::Terminating) => removed.remaining.push(id),
                Ok(Deletion::Left(why)) => {
                    inventory.entries.remove(&id);
                    removed.left.push((id, why));
                }
                Err(why) => removed.refused.push((id, why)),
            }
        }
        if !removed.remaining.is_empty() || !removed.refused.is_empty() {
            break;
        }
    }
    removed
}

/// Whether the control plane recreated a deleted ClusterRole that aggregates others: nobody else
/// wrote it.
fn is_remainder(meta: &ObjectMeta) -> bool {
    let mut managers = meta.managed_fields.iter().flatten().map(|entry| entry.manager.as_deref());
    meta.managed_fields.as_ref().is_some_and(|entries| !entries.is_empty())
        && managers.all(|manager| manager == Some("clusterrole-aggregation-controller"))
}

/// Order of deletion, highest first. Aggregated ClusterRoles go before the roles that they
/// aggregate: when one of those goes, the control plane writes the aggregate again and would
/// recreate it.
fn deletion_order((id, entry): (&ObjectId, &Entry)) -> (Phase, bool) {
    (Phase::of(&id.group, &id.kind), entry.aggregated)
}

/// Deletes those of `objects` that show `proof`. The results are in the order of the objects, so
/// that what is said about them doesn't change from try to try.
pub async fn delete(
    client: &Client,
    kinds: &Kinds,
    proof: &Proof,
    objects: Vec<(ObjectId, Entry)>,
) -> Vec<(ObjectId, Result<Deletion, ApplyError>)> {
    let deletes = objects.into_iter().map(|(id, entry)| async move {
        let outcome = delete_object(client, kinds, proof, &id, &entry).await;
        (id, outcome)
    });
    futures::stream::iter(deletes).buffered(CONCURRENCY).collect().await
}

async fn delete_object(
    client: &Client,
    kinds: &Kinds,
    proof: &Proof,
    id: &ObjectId,
    entry: &Entry,
) -> Result<Deletion, ApplyError> {
    if NEVER.contains(&id.group.as_str()) {
        return Ok(Deletion::Left("no installation has such objects"));
    }
    // No such kind, so no such object.
    let Some(kind) = resolve_applied(client, kinds, id, &entry.version).await? else { return Ok(Deletion::Gone) };
    let api = api(client, &kind, id);
    for _ in 1..ATTEMPTS {
        match delete_read(&api, proof, id, entry).await {
            // It changed after it was read.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => return other.map_err(ApplyError::from),
        }
    }
    Ok(delete_read(&api, proof, id, entry).await?)
}

/// Reads the object and deletes it, if it has not changed since.
async fn delete_read(api: &Objects, proof: &Proof, id: &ObjectId, entry: &Entry) -> kube::Result<Deletion> {
    let Some(found) = api.get_metadata_opt(&id.name).await? else { return Ok(Deletion::Gone) };
    let meta = found.metadata;
    if let Some(objection) = proof.objection(&id.kind, &meta).filter(|_| !(entry.aggregated && is_remainder(&meta))) {
        return Ok(Deletion::Left(objection));
    }
    if meta.deletion_timestamp.is_some() {
        return Ok(Deletion::Terminating);
    }
    // Foreground deletion: a Deployment stays until its Pods are gone.
    let policy = if matches!(id.group.as_str(), "apps" | "batch") {
        PropagationPolicy::Foreground
    } else {
        PropagationPolicy::Background
    };
    let preconditions = Preconditions { uid: meta.uid, resource_version: meta.resource_version };
    let params = DeleteParams {
        propagation_policy: Some(policy),
        preconditions: Some(preconditions),
        ..DeleteParams::default()
    };
    match api.delete(&id.name, &params).await {
        // The API server answers with a Status if the object had no finalizers and is gone. The
        // control plane may recreate an aggregated role with a write under way, so that one is gone
        // when the next try finds nothing.
        Ok(either) if either.is_right() && !entry.aggregated => Ok(Deletion::Gone),
        Ok(_) => Ok(Deletion::Terminating),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(Deletion::Gone),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use http::{Request, Response};
    use knative_operator_shared::api::Component;
    use kube::client::Body;
    use serde_json::json;

    use super::*;

    /// A cluster whose API server answers each request with `code`, and first all that are not
    /// about the group a.example.com.
    fn cluster(code: u16) -> Client {
        let answer = move |request: Request<Body>| async move {
            if request.uri().path().contains("/a.example.com") {
                for _ in 0..100 {
                    tokio::task::yield_now().await;
                }
            }
            let status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": "no", "reason": "no", "code": code});
            let response = Response::builder().status(code).body(Body::from(status.to_string().into_bytes()));
            response.map_err(|error| error.to_string())
        };
        Client::new(tower::service_fn(answer), "n")
    }

    fn proof() -> Proof {
        Proof {
            marks: Vec::new(),
            former: Vec::new(),
            component: Component::Serving,
            owner: String::new(),
            unmarked: true,
            unlabeled: false,
        }
    }

    fn thing(group: &str) -> (ObjectId, Entry) {
        (ObjectId::new(group, "Thing", "n", "a"), Entry { version: "v1".to_owned(), ..Entry::default() })
    }

    #[tokio::test]
    async fn results_are_in_the_order_of_the_objects() {
        let things = ["a.example.com", "b.example.com", "c.example.com"].map(thing);
        let ids = things.clone().map(|(id, _)| id);
        let results = delete(&cluster(403), &Kinds::default(), &proof(), things.to_vec()).await;
        assert_eq!(results.into_iter().map(|(id, _)| id).collect::<Vec<_>>(), ids);
    }

    #[tokio::test]
    async fn kind_that_cannot_be_looked_up_is_not_gone() {
        for (code, is_gone) in [(404, true), (403, false), (500, false), (503, false)] {
            let things = vec![thing("example.com")];
            let outcome = delete(&cluster(code), &Kinds::default(), &proof(), things).await.remove(0).1;
            match outcome {
                Ok(outcome) => assert!(is_gone && outcome == Deletion::Gone, "{code}: {outcome:?}"),
                Err(why) => {
                    let looked_up = "cannot look up Thing.example.com ";
                    assert!(!is_gone && why.to_string().starts_with(looked_up), "{code}: {why}");
                }
            }
        }
    }
}
