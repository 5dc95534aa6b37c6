//! Whose installation a cluster has, as the operator decides it.

use std::collections::BTreeSet;

use jiff::Timestamp;
use knative_operator_runtime::error_text;
use knative_operator_shared::api::Knative;
use knative_operator_shared::label::TAKE_OVER;
use kube::Client;

use super::check::Finding;
use knative_operator_apply::anchor::InventoryStore;
use knative_operator_apply::claim::{Anchor, Claimant, Installed, Record, Step};
use knative_operator_apply::places;
use knative_operator_apply::store_error::StoreError;
use knative_operator_objects::{Hub, InstallationOwner};

/// Whether `resource` of the hub with the uid `hub` may install on the cluster of `client`. Without
/// a hub, who owns what is there.
pub async fn finding(client: &Client, hub: Option<&str>, resource: &Knative) -> Finding {
    match look(client, hub.unwrap_or_default(), resource).await {
        Ok((step, elsewhere)) => describe(resource, &step, &elsewhere, hub.is_some()),
        Err(error) => Finding::failed(format!("{}: {}", resource.component(), error_text(&error))),
    }
}

/// The next step of `resource`, and the namespaces where an installation without an owner is.
async fn look(client: &Client, hub: &str, resource: &Knative) -> Result<(Step, BTreeSet<String>), StoreError> {
    let store = InventoryStore::of(resource);
    let hub = Hub { uid: hub.to_owned(), name: None };
    let me = InstallationOwner::of(resource, &hub, Timestamp::now().to_string());
    let own = store.load(client).await?;
    let (others, _) = store.others(client, &me, &places::Names::new()).await?;
    let installed = if resource.has_installed() { Installed::Somewhere } else { Installed::Nowhere };
    let take_over = resource.annotation(TAKE_OVER).map(str::to_owned);
    let claimant = Claimant { me, installed, has_begun: false, is_abandoned: false, take_over };
    let step = claimant.step(own.as_ref().map(|own| &own.anchor), &others);
    let is_first = matches!(step, Step::Create(_)) && !resource.has_installed();
    let elsewhere = if is_first { places::installed_in(client, resource.component()).await? } else { BTreeSet::new() };
    Ok((step, elsewhere))
}

fn describe(resource: &Knative, step: &Step, elsewhere: &BTreeSet<String>, knows_hub: bool) -> Finding {
    let component = resource.component();
    match step {
        Step::Create(_) if !elsewhere.is_empty() => {
            let namespaces = elsewhere.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            Finding::warning(format!(
                "ClusterRoleBindings of another installation of {component} are left, for accounts in {namespaces}"
            ))
        }
        Step::Create(_) => Finding::passed(format!("nobody has installed {component}")),
        Step::Proceed | Step::Record(_) => {
            Finding::passed(format!("{component} is that of {}/{}", resource.namespace(), resource.name()))
        }
        Step::Withdraw => Finding::failed(format!("another resource is about to install {component}")),
        Step::Wait(anchor) if knows_hub => Finding::failed(owner_of(resource, anchor)),
        Step::Wait(anchor) => Finding::warning(owner_of(resource, anchor)),
    }
}

fn owner_of(resource: &Knative, Anchor { namespace, name, record, .. }: &Anchor) -> String {
    let component = resource.component();
    let map = format!("ConfigMap {namespace}/{name}");
    match record {
        Record::Owner(owner) => format!("{component} on this cluster belongs to {owner}, as {map} records"),
        Record::Unreadable => format!("{map} records an owner of {component} that this version can't read"),
        Record::Absent => format!(
            "{map} shows an installation of {component} by the Go operator or version 0.2.0, whose owner is not recorded"
        ),
    }
}

#[cfg(test)]
mod tests {
    use knative_operator_rules as rules;
    use knative_operator_shared::api::Component;
    use serde_json::json;

    use super::super::check::Outcome;
    use super::*;

    #[test]
    fn each_step_is_described() {
        let object = json!({"metadata": {"name": "ks", "namespace": "team"}, "spec": {}});
        let resource = rules::parse(Component::Serving, &object).unwrap();
        let owner = InstallationOwner::of(&resource, &Hub { uid: "1-2".to_owned(), name: None }, "t".to_owned());
        let anchor = |record: Record| Anchor {
            namespace: "n".to_owned(),
            name: "a".to_owned(),
            uid: "u".to_owned(),
            version: 1,
            created: 0,
            record,
        };
        let none = BTreeSet::new();
        for (step, outcome, part) in [
            (Step::Create(owner.clone()), Outcome::Passed, "nobody has installed KnativeServing"),
            (Step::Proceed, Outcome::Passed, "that of team/ks"),
            (Step::Withdraw, Outcome::Failed, "about to install"),
            (Step::Wait(anchor(Record::Owner(owner.clone()))), Outcome::Failed, "as ConfigMap n/a records"),
            (Step::Wait(anchor(Record::Absent)), Outcome::Failed, "by the Go operator"),
            (Step::Wait(anchor(Record::Unreadable)), Outcome::Failed, "can't read"),
        ] {
            let found = describe(&resource, &step, &none, true);
            assert!(found.outcome == outcome && found.detail.contains(part), "{found:?}");
            if outcome == Outcome::Failed && matches!(step, Step::Wait(_)) {
                assert_eq!(describe(&resource, &step, &none, false).outcome, Outcome::Warning);
            }
        }
        let elsewhere = BTreeSet::from(["old".to_owned()]);
        let found = describe(&resource, &Step::Create(owner), &elsewhere, true);
        assert!(found.outcome == Outcome::Warning && found.detail.ends_with("for accounts in old"), "{found:?}");
    }
}
