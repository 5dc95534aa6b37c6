//! The stored resources, and the questions about them.

use std::collections::BTreeSet;

use knative_operator_shared::authorization::author::User;
use knative_operator_shared::authorization::questions::Question;
use knative_operator_shared::authorization::write::Write;
use knative_operator_shared::authorization::{approvals, questions};
use knative_operator_shared::label::AUTHOR;
use knative_operator_shared::rules::Kind;
use kube::Client;
use serde_json::Value;

use super::super::list;
use super::subject::Subject;

/// Namespace and uid of a fleet.
type FleetId = (String, String);

/// A stored resource.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its kind.
    pub kind: Kind,
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// What its writer needs.
    pub questions: Vec<Question>,
    /// Who asked for it, if the webhook recorded that.
    pub author: Option<Subject>,
}

/// The resources of all kinds, in `namespace` or in all.
pub async fn list(client: &Client, namespace: Option<&str>) -> Result<Vec<Stored>, String> {
    let mut objects: Vec<(Kind, Value)> = Vec::new();
    for kind in Kind::ALL {
        let found = list::objects(client, kind, namespace).await?;
        // A hub without fleets may lack their definition.
        if found.is_none() && kind != Kind::Fleet {
            return Err(list::not_installed(kind));
        }
        for mut object in found.unwrap_or_default() {
            object.metadata.managed_fields = None;
            // Plain data with string keys always serializes.
            objects.push((kind, serde_json::to_value(object).unwrap_or_default()));
        }
    }
    let fleets: BTreeSet<FleetId> = objects.iter().filter_map(|(kind, object)| fleet_id(*kind, object)).collect();
    Ok(objects.iter().map(|(kind, object)| Stored::new(*kind, object, &fleets)).collect())
}

fn fleet_id(kind: Kind, object: &Value) -> Option<FleetId> {
    let uid = object["metadata"]["uid"].as_str()?;
    (kind == Kind::Fleet).then(|| (text(object, "namespace"), uid.to_owned()))
}

fn text(object: &Value, field: &str) -> String {
    object["metadata"][field].as_str().unwrap_or_default().to_owned()
}

impl Stored {
    /// `object` of `kind`, on a hub with `fleets`.
    fn new(kind: Kind, object: &Value, fleets: &BTreeSet<FleetId>) -> Self {
        let (namespace, name) = (text(object, "namespace"), text(object, "name"));
        let write = Write { kind, namespace: &namespace, new: object, old: None };
        let mut questions = questions::about(&write);
        // The operator writes the state of a rollout, without a permission.
        if !is_of_fleet(object, &namespace, fleets) {
            questions.extend(approvals::about(&write));
        }
        let author = object["metadata"]["annotations"][AUTHOR].as_str().and_then(User::decode);
        Self { kind, namespace, name, questions, author: author.map(Subject::author) }
    }
}

/// Whether `object` belongs to one of `fleets`.
fn is_of_fleet(object: &Value, namespace: &str, fleets: &BTreeSet<FleetId>) -> bool {
    let mut owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.any(|owner| {
        let uid = owner["uid"].as_str().unwrap_or_default().to_owned();
        owner["kind"] == Kind::Fleet.name() && fleets.contains(&(namespace.to_owned(), uid))
    })
}

#[cfg(test)]
mod tests {
    use knative_operator_shared::api::Component;
    use knative_operator_shared::label::FLEET_REVISION;
    use serde_json::json;

    use super::*;

    #[test]
    fn rollout_state_is_asked_about_unless_the_fleet_exists() {
        let fleet = json!({"metadata": {"name": "f", "namespace": "tenant", "uid": "1"}});
        let id = fleet_id(Kind::Fleet, &fleet).unwrap();
        assert_eq!(fleet_id(Kind::Component(Component::Serving), &fleet), None);
        let fleets = BTreeSet::from([id]);
        let asked = |namespace: &str, uid: &str| -> Vec<String> {
            let owners = json!([{"kind": "KnativeFleet", "name": "f", "uid": uid}]);
            let object = json!({"metadata": {"name": "x", "namespace": namespace, "ownerReferences": owners,
                    "annotations": {FLEET_REVISION: "f-1"}},
                "spec": {"clusterProfileRef": {"name": "a", "namespace": "f"}}});
            let stored = Stored::new(Kind::Component(Component::Serving), &object, &fleets);
            stored.questions.into_iter().map(|question| question.permission.action()).collect()
        };
        let use_a = "use ClusterProfile \"f/a\"";
        assert_eq!(asked("tenant", "1"), [use_a]);
        assert_eq!(asked("tenant", "2"), [use_a, "approve rollouts in namespace \"tenant\""]);
        assert_eq!(asked("other", "1"), [use_a, "approve rollouts in namespace \"other\""]);
    }
}
