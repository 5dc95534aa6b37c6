//! What the fleet that owns a resource says about the deletion of the resource. The garbage
//! collector and the namespace controller delete resources of a fleet without asking the webhook:
//! in a deletion in the foreground, with the namespace, and after a restore, in which the fleet got
//! another uid.

use k8s_openapi::api::core::v1::Namespace;
use knative_operator_rules::is_protected;
use knative_operator_shared::api::fleet::{Removal, RemovalPolicy};
use knative_operator_shared::api::{Knative, KnativeFleet};
use knative_operator_shared::fleet::deletion;
use knative_operator_shared::label::PROTECTED;
use kube::api::ListParams;
use kube::core::{ApiResource, DynamicObject};
use kube::{Api, Client};
use serde::Deserialize;

use knative_operator_apply::store_error::StoreError;

/// What a fleet says about the deletion of one of its resources; reasons are for people.
#[derive(Debug, PartialEq, Eq)]
pub enum Answer {
    /// There is no fleet, or nothing against it.
    Uninstall,
    /// The installation stays without the resource.
    Leave(String),
    /// The resource stays until the fleet changes.
    Keep(String),
}

/// What the fleet of `resource`, which is being deleted, says about that.
///
/// # Errors
///
/// If it can't be read.
pub async fn answer(hub: &Client, resource: &Knative) -> Result<Answer, StoreError> {
    let mut owners = resource.meta().owner_references.iter().flatten();
    let Some(owner) = owners.find(|owner| owner.kind == "KnativeFleet") else { return Ok(Answer::Uninstall) };
    // Untyped: a newer version may have stored it.
    let kind = ApiResource::erase::<KnativeFleet>(&());
    let fleets: Api<DynamicObject> = Api::namespaced_with(hub.clone(), resource.namespace(), &kind);
    let named = ListParams::default().fields(&format!("metadata.name={}", owner.name));
    let found = match fleets.list(&named).await {
        Ok(found) => found.items,
        Err(kube::Error::Api(status)) if status.code == 404 => Vec::new(),
        // Without fleets, the operator may not look.
        Err(kube::Error::Api(status)) if status.code == 403 => return Ok(Answer::Uninstall),
        Err(source) => return Err(failed("KnativeFleet", &owner.name, source)),
    };
    let Some(fleet) = found.into_iter().find(|fleet| fleet.metadata.uid.as_ref() == Some(&owner.uid)) else {
        return Ok(Answer::Leave(format!(
            "because the resource is of KnativeFleet {} with uid {}, which does not exist, such as after a restore",
            owner.name, owner.uid
        )));
    };
    let namespace = resource.namespace();
    let is_deleted = fleet.metadata.deletion_timestamp.is_some()
        || is_namespace_terminating(hub, namespace).await.map_err(|source| failed("Namespace", namespace, source))?;
    Ok(if is_deleted { of_deleted(&fleet) } else { Answer::Uninstall })
}

/// What `fleet` says, which is being deleted itself, or will be with its namespace.
fn of_deleted(fleet: &DynamicObject) -> Answer {
    let (meta, data) = (&fleet.metadata, &fleet.data);
    let name = meta.name.as_deref().unwrap_or_default();
    // What can't be read asks for a confirmation.
    let removal = Removal::deserialize(&data["spec"]["removal"]).unwrap_or_default();
    if removal.policy == RemovalPolicy::Orphan {
        return Answer::Leave(format!("as spec.removal.policy of KnativeFleet {name} asks"));
    }
    let begins = format!("KnativeFleet {name} is being deleted");
    if is_protected(meta) {
        let namespace = meta.namespace.as_deref().unwrap_or_default();
        return Answer::Keep(format!(
            "{begins}, but the annotation {PROTECTED} protects it: nothing is uninstalled; to uninstall: kubectl annotate knativefleet {name} \
             -n {namespace} {PROTECTED}-; to keep the installation: set spec.removal.policy of the fleet to Orphan"
        ));
    }
    let unconfirmed = deletion::unconfirmed(meta, &removal, deletion::installed(&data["status"]));
    unconfirmed.map_or(Answer::Uninstall, |(message, fix)| {
        Answer::Keep(format!("{begins}, which {message}: nothing is uninstalled; {fix}"))
    })
}

/// Whether the namespace `name` of the hub is being deleted.
pub async fn is_namespace_terminating(hub: &Client, name: &str) -> Result<bool, kube::Error> {
    let found = Api::<Namespace>::all(hub.clone()).get_metadata_opt(name).await?;
    Ok(found.is_none_or(|found| found.metadata.deletion_timestamp.is_some()))
}

fn failed(kind: &str, name: &str, source: kube::Error) -> StoreError {
    StoreError::Api { what: format!("failed to read {kind} {name}"), source }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn fleet(annotations: &Value, removal: &Value, status: &Value) -> DynamicObject {
        serde_json::from_value(json!({"apiVersion": "operator.knative.dev/v1alpha1", "kind": "KnativeFleet",
            "metadata": {"name": "prod", "namespace": "n", "annotations": annotations},
            "spec": {"removal": removal}, "status": status}))
        .unwrap()
    }

    #[test]
    fn deleted_fleet_keeps_its_resources_until_the_deletion_is_confirmed() {
        let (none, two) = (json!({}), json!({"installed": 2, "clusters": 7}));
        let says =
            |annotations: &Value, removal: &Value, status: &Value| of_deleted(&fleet(annotations, removal, status));
        let confirmed = json!({"operator.knative.dev/confirm-removal": "2"});
        assert!(matches!(says(&none, &none, &two), Answer::Keep(why) if why.contains("from 2 clusters")));
        assert_eq!(says(&confirmed, &none, &two), Answer::Uninstall);
        assert!(matches!(says(&confirmed, &none, &json!({"clusters": 7})), Answer::Keep(_)), "an earlier version");
        assert_eq!(says(&none, &json!({"maxAtOnce": "100%"}), &two), Answer::Uninstall);
        assert!(matches!(says(&none, &json!({"policy": "Orphan"}), &two), Answer::Leave(_)));
        assert!(matches!(says(&none, &json!({"policy": "Retain"}), &two), Answer::Keep(_)), "not readable");
        let protected = json!({"operator.knative.dev/protected": "true", "operator.knative.dev/confirm-removal": "2"});
        assert!(matches!(says(&protected, &none, &two), Answer::Keep(why) if why.contains("protects it")));
    }
}
