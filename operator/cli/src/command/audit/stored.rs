//! The stored resources, and the questions about them.

use std::collections::BTreeMap;

use knative_operator_rules::authorization::author::User;
use knative_operator_rules::authorization::permission::Permission;
use knative_operator_rules::authorization::questions::Question;
use knative_operator_rules::authorization::write::Write;
use knative_operator_rules::authorization::{approvals, questions};
use knative_operator_shared::api::{Kind, KnativeFleetSpec};
use knative_operator_shared::fleet::content::digest;
use knative_operator_shared::label::{AUTHOR, FLEET_SKIPPED};
use kube::Client;
use serde_json::Value;

use super::super::list;
use super::subject::Subject;
use knative_operator_fleet::child;

/// Namespace and uid of a fleet.
type FleetId = (String, String);
/// The fleets, with the rollout of each as [`FLEET_SKIPPED`] names it; empty if there is none.
type Fleets = BTreeMap<FleetId, String>;

/// Kind of a stored object that somebody needs a permission for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredKind {
    /// A resource, or a fleet.
    Resource(Kind),
    /// A KnativeFleetApproval.
    Approval,
}

impl StoredKind {
    /// Its name, as in `kind`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Resource(kind) => kind.name(),
            Self::Approval => "KnativeFleetApproval",
        }
    }

    /// Its plural, as in URLs.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Resource(kind) => kind.plural(),
            Self::Approval => list::APPROVALS,
        }
    }
}

/// A stored resource.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Its kind.
    pub kind: StoredKind,
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
    let fleet = |(kind, object): &(Kind, Value)| Some((fleet_id(*kind, object)?, rollout(object).unwrap_or_default()));
    let fleets: Fleets = objects.iter().filter_map(fleet).collect();
    let mut all: Vec<Stored> = objects.iter().map(|(kind, object)| Stored::new(*kind, object, &fleets)).collect();
    let found = if fleets.is_empty() { None } else { list::approvals(client, namespace).await? };
    for approval in found.unwrap_or_default() {
        let approval = serde_json::to_value(approval).unwrap_or_default();
        all.extend(Stored::approval(&approval, &objects));
    }
    Ok(all)
}

fn fleet_id(kind: Kind, object: &Value) -> Option<FleetId> {
    let uid = object["metadata"]["uid"].as_str()?;
    (kind == Kind::Fleet).then(|| (text(object, "namespace"), uid.to_owned()))
}

/// The rollout of the `fleet`, as [`FLEET_SKIPPED`] names it.
fn rollout(fleet: &Value) -> Option<String> {
    let status = &fleet["status"];
    Some(child::skipped(status["updateRevision"].as_str()?, status["rolloutGeneration"].as_i64()?))
}

fn text(object: &Value, field: &str) -> String {
    object["metadata"][field].as_str().unwrap_or_default().to_owned()
}

impl Stored {
    /// `object` of `kind`, on a hub with `fleets`.
    fn new(kind: Kind, object: &Value, fleets: &Fleets) -> Self {
        let (namespace, name) = (text(object, "namespace"), text(object, "name"));
        let write = Write { kind, namespace: &namespace, new: object, old: None };
        let mut questions = questions::about(&write);
        match fleet_of(object, &namespace, fleets) {
            // The operator writes the state of a rollout, without a permission, but skips nothing.
            Some(rollout) => {
                let skipped = object["metadata"]["annotations"][FLEET_SKIPPED].as_str();
                if skipped.is_some_and(|skipped| skipped == rollout) {
                    let field = format!("metadata.annotations[{FLEET_SKIPPED}]");
                    questions.push(Question::new(field, Permission::to_approve(&namespace)));
                }
            }
            None => questions.extend(approvals::about(&write)),
        }
        let author = object["metadata"]["annotations"][AUTHOR].as_str().and_then(User::decode);
        Self { kind: StoredKind::Resource(kind), namespace, name, questions, author: author.map(Subject::author) }
    }

    /// The approval `object`, if it counts for what a fleet among `objects` rolls out now. One of
    /// an earlier version names its user only.
    fn approval(object: &Value, objects: &[(Kind, Value)]) -> Option<Self> {
        let (namespace, name, spec) = (text(object, "namespace"), text(object, "name"), &object["spec"]);
        let is_its_fleet = |(kind, fleet): &&(Kind, Value)| {
            *kind == Kind::Fleet && text(fleet, "namespace") == namespace && spec["fleet"] == fleet["metadata"]["name"]
        };
        let (_, fleet) = objects.iter().find(is_its_fleet)?;
        if !spec["fleetUID"].is_null() {
            let digest =
                serde_json::from_value::<KnativeFleetSpec>(fleet["spec"].clone()).ok().map(|spec| digest(&spec));
            // An unreadable fleet rolls nothing out.
            if spec["fleetUID"] != fleet["metadata"]["uid"] || spec["digest"].as_str() != Some(digest?.as_str()) {
                return None;
            }
        }
        let user = spec["username"].as_str()?;
        let recorded = object["metadata"]["annotations"][AUTHOR].as_str().and_then(User::decode);
        let author = recorded.filter(|recorded| recorded.username == user).map(Subject::author);
        let questions = vec![Question::new("spec", Permission::to_approve(&namespace))];
        let author = Some(author.unwrap_or_else(|| Subject::user(user, &[])));
        Some(Self { kind: StoredKind::Approval, namespace, name, questions, author })
    }
}

/// The rollout of the one of `fleets` that `object` belongs to; `None` if it belongs to none.
fn fleet_of<'f>(object: &Value, namespace: &str, fleets: &'f Fleets) -> Option<&'f str> {
    let mut owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
    owners.find_map(|owner| {
        let uid = owner["uid"].as_str().unwrap_or_default().to_owned();
        let rollout = fleets.get(&(namespace.to_owned(), uid)).filter(|_| owner["kind"] == Kind::Fleet.name());
        rollout.map(String::as_str)
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
        let fleet = json!({"metadata": {"name": "f", "namespace": "tenant", "uid": "1"},
            "status": {"updateRevision": "f-1", "rolloutGeneration": 2}});
        let id = fleet_id(Kind::Fleet, &fleet).unwrap();
        assert_eq!(fleet_id(Kind::Component(Component::Serving), &fleet), None);
        let fleets = Fleets::from([(id, rollout(&fleet).unwrap())]);
        let asked_about = |namespace: &str, uid: &str, skipped: Option<&str>| -> Vec<String> {
            let owners = json!([{"kind": "KnativeFleet", "name": "f", "uid": uid}]);
            let object = json!({"metadata": {"name": "x", "namespace": namespace, "ownerReferences": owners,
                    "annotations": {FLEET_REVISION: "f-1", FLEET_SKIPPED: skipped}},
                "spec": {"clusterProfileRef": {"name": "a", "namespace": "f"}}});
            let stored = Stored::new(Kind::Component(Component::Serving), &object, &fleets);
            stored.questions.into_iter().map(|question| question.permission.action()).collect()
        };
        let asked = |namespace: &str, uid: &str| asked_about(namespace, uid, None);
        let use_a = "use ClusterProfile \"f/a\"";
        assert_eq!(asked("tenant", "1"), [use_a]);
        assert_eq!(asked("tenant", "2"), [use_a, "approve rollouts in namespace \"tenant\""]);
        assert_eq!(asked("other", "1"), [use_a, "approve rollouts in namespace \"other\""]);
        // Only users skip clusters. A skip of another rollout has no effect.
        let may_skip = [use_a, "approve rollouts in namespace \"tenant\""];
        assert_eq!(asked_about("tenant", "1", Some("f-1/2")), may_skip);
        assert_eq!(asked_about("tenant", "1", Some("f-1/1")), [use_a]);
    }

    #[test]
    fn approvals_that_count_are_asked_about() {
        let spec = json!({"placement": {"clusterSelector": {}}, "serving": {"spec": {"version": "1.22"}}});
        let current = digest(&serde_json::from_value(spec.clone()).unwrap());
        let fleet = json!({"metadata": {"name": "f", "namespace": "tenant", "uid": "1"}, "spec": spec});
        let objects = [(Kind::Fleet, fleet)];
        let of = |patch: Value| {
            let mut approval = json!({"metadata": {"name": "a", "namespace": "tenant"},
                "spec": {"fleet": "f", "fleetUID": "1", "digest": current, "username": "jane"}});
            json_patch::merge(&mut approval, &patch);
            Stored::approval(&approval, &objects)
        };
        let author = |patch: Value| of(patch).and_then(|stored| stored.author).unwrap();
        let recorded = |name: &str| {
            let user = json!({"username": name, "groups": ["approvers"]}).to_string();
            json!({"metadata": {"annotations": {AUTHOR: user}}})
        };
        assert_eq!(author(recorded("jane")).groups, ["approvers"]);
        assert_eq!(author(json!({})), Subject::user("jane", &[]));
        assert_eq!(author(recorded("admin")), Subject::user("jane", &[]), "somebody else wrote the annotation");
        assert_eq!(of(json!({})).unwrap().questions[0].permission, Permission::to_approve("tenant"));
        // One of an earlier version, which may still count.
        assert!(of(json!({"spec": {"fleetUID": null, "digest": null}})).is_some());
        for other in
            [json!({"fleetUID": "2"}), json!({"digest": "sha256:0"}), json!({"fleet": "g"}), json!({"username": null})]
        {
            assert!(of(json!({"spec": other})).is_none(), "{other}");
        }
        assert!(of(json!({"metadata": {"namespace": "other"}})).is_none());
    }
}
