//! Who asked for a resource: the webhook records its author, since the API server records none. The
//! operator asks about the author when the resource begins to install, which may be long after
//! somebody stored it. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::authorization::v1::SubjectAccessReviewSpec;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::permission::Permission;
use super::write::Write;
use knative_operator_shared::label::AUTHOR;

/// Maximum size of a recorded author, in bytes. All annotations of an object may have 256 KiB.
const MAX_SIZE: usize = 32 << 10;

/// Parts of the keys of extra fields that identify a credential or a session, or are one, by the
/// API server, GKE and EKS. No other field is left out: it may limit what the user may do.
const OF_CREDENTIALS: [&str; 7] = [
    "authentication.kubernetes.io/",
    "user-assertion",
    "iam.gke.io/",
    "accessKeyId",
    "sessionName",
    "arn",
    "principalId",
];

/// A user, as the API server authenticated them (`authentication.k8s.io/v1` `UserInfo`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct User {
    /// Name.
    pub username: String,
    /// Identifier.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    /// Groups.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "Vec::is_empty")]
    pub groups: Vec<String>,
    /// What the authenticator adds, such as the scopes of a token.
    #[serde(deserialize_with = "null_as_default", skip_serializing_if = "BTreeMap::is_empty")]
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Approximate size in bytes.
    pub fn size(&self) -> usize {
        let extra = self.extra.iter().flat_map(|(key, values)| std::iter::once(key).chain(values));
        [&self.username, &self.uid].into_iter().chain(&self.groups).chain(extra).map(|text| text.len() + 32).sum()
    }

    /// The question whether the user has `permission`.
    pub fn question(&self, permission: &Permission) -> SubjectAccessReviewSpec {
        SubjectAccessReviewSpec {
            user: Some(self.username.clone()),
            uid: (!self.uid.is_empty()).then(|| self.uid.clone()),
            groups: Some(self.groups.clone()),
            extra: Some(self.extra.clone()),
            resource_attributes: Some(permission.attributes()),
            ..SubjectAccessReviewSpec::default()
        }
    }

    /// The value of the annotation [`AUTHOR`] for the user, without what identifies a credential.
    /// One with too many groups is recorded without a name: half of what the API server knows could
    /// permit more than all of it.
    fn encode(&self) -> String {
        let mut recorded = if self.size() > MAX_SIZE { Self::default() } else { self.clone() };
        recorded.extra.retain(|key, _| !OF_CREDENTIALS.iter().any(|part| key.contains(part)));
        // Strings always serialize.
        serde_json::to_string(&recorded).unwrap_or_default()
    }

    /// The user in the annotation [`AUTHOR`] with this `value`; `None` if it names nobody.
    pub fn decode(value: &str) -> Option<Self> {
        serde_json::from_str(value).ok().filter(|user: &Self| !user.username.is_empty())
    }
}

/// Reads `null` as the default: Go writes it for an empty list or map.
pub fn null_as_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(
    deserializer: D,
) -> Result<T, D::Error> {
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// The annotation [`AUTHOR`] of `object`.
fn recorded(object: &Value) -> &Value {
    &object["metadata"]["annotations"][AUTHOR]
}

/// Whether `write` changes the author: its user answers for the resource from now on.
pub fn is_changed(write: &Write<'_>) -> bool {
    write.old.is_some_and(|old| recorded(old) != recorded(write.new))
}

/// The change of the metadata that records the author of `write`, as a JSON merge patch (RFC 7386);
/// `None` if they are recorded. The author of a new resource is `user`. An update keeps the author,
/// unless it changes the annotation, or the clusters of a fleet: then it is `user` as well.
pub fn record(write: &Write<'_>, user: &User) -> Option<Value> {
    let new = recorded(write.new);
    let author = match write.old.map(recorded) {
        Some(_) if write.changes_clusters() => Value::from(user.encode()),
        Some(old) if old == new => return None,
        Some(old) if new.is_null() => old.clone(),
        _ => Value::from(user.encode()),
    };
    (author != *new).then(|| json!({"metadata": {"annotations": {AUTHOR: author}}}))
}

/// The change of the metadata that keeps the author whom `old` records in `new`, as a JSON merge
/// patch; `None` if it has them.
pub fn keep(new: &Value, old: &Value) -> Option<Value> {
    (recorded(new) != recorded(old)).then(|| json!({"metadata": {"annotations": {AUTHOR: recorded(old)}}}))
}

/// The change of the metadata that records `user`, as a JSON merge patch.
pub fn annotation(user: &User) -> Value {
    json!({"metadata": {"annotations": {AUTHOR: user.encode()}}})
}

#[cfg(test)]
mod tests {
    use super::*;
    use knative_operator_shared::api::{Component, Kind};

    fn user(name: &str) -> User {
        User { username: name.to_owned(), groups: vec!["team".to_owned()], ..User::default() }
    }

    fn object(author: &Value) -> Value {
        json!({"metadata": {"name": "x", "annotations": {AUTHOR: author}}, "spec": {}})
    }

    /// The author that is stored after `user` wrote `new`, and whether it is another one.
    fn stored(new: &Value, old: Option<&Value>, user: &User) -> (Option<String>, bool) {
        let write = |new| Write { kind: Kind::Component(Component::Serving), namespace: "n", new, old };
        let mut object = new.clone();
        if let Some(patch) = record(&write(new), user) {
            json_patch::merge(&mut object, &patch);
        }
        let is_changed = is_changed(&write(&object));
        (recorded(&object).as_str().and_then(User::decode).map(|user| user.username), is_changed)
    }

    #[test]
    fn author_is_who_created_the_resource() {
        let (jane, admin) = (user("jane"), user("admin").encode());
        let by = |name: &str| Some(name.to_owned());
        for given in [Value::Null, json!(admin), json!(jane.encode()), json!(7), json!("")] {
            assert_eq!(stored(&object(&given), None, &jane), (by("jane"), false), "{given}");
        }
        assert_eq!(stored(&json!({"spec": {}}), None, &jane), (by("jane"), false));
        let of_admin = object(&json!(admin));
        for given in [json!({"spec": {"version": "1"}}), object(&Value::Null), of_admin.clone()] {
            assert_eq!(stored(&given, Some(&of_admin), &jane), (by("admin"), false), "{given}");
        }
        // Somebody else answers for it.
        for given in [json!(jane.encode()), json!("me"), json!("")] {
            assert_eq!(stored(&object(&given), Some(&of_admin), &jane), (by("jane"), true), "{given}");
        }
        // One of an earlier version.
        assert_eq!(stored(&json!({"spec": {}}), Some(&json!({"spec": {}})), &jane), (None, false));
        assert_eq!(stored(&object(&json!("me")), Some(&json!({"spec": {}})), &jane), (by("jane"), true));
    }

    #[test]
    fn author_of_a_fleet_is_who_chose_its_clusters() {
        let fleet = |version: &str, label: &str, author: &Value| {
            json!({"metadata": {"name": "f", "annotations": {AUTHOR: author}}, "spec": {"serving": {"spec": {"version": version}},
                "placement": {"clusterSelector": {"matchLabels": {"env": label}}}}})
        };
        let (jane, admin) = (user("jane"), json!(user("admin").encode()));
        let old = fleet("1.22", "prod", &admin);
        for (new, expected) in [
            (fleet("1.23", "prod", &admin), None),
            (fleet("1.23", "prod", &Value::Null), Some(admin.clone())),
            (fleet("1.22", "test", &admin), Some(json!(jane.encode()))),
            (fleet("1.22", "test", &Value::Null), Some(json!(jane.encode()))),
            (fleet("1.22", "prod", &json!("me")), Some(json!(jane.encode()))),
        ] {
            let write = Write { kind: Kind::Fleet, namespace: "n", new: &new, old: Some(&old) };
            let recorded = record(&write, &jane).map(|patch| patch["metadata"]["annotations"][AUTHOR].clone());
            assert_eq!(recorded, expected, "{new}");
        }
        // One of an earlier version keeps its unknown author.
        let (old, new) = (fleet("1.22", "prod", &Value::Null), fleet("1.23", "prod", &Value::Null));
        assert_eq!(record(&Write { kind: Kind::Fleet, namespace: "n", new: &new, old: Some(&old) }, &jane), None);
    }

    #[test]
    fn author_is_recorded_whole_or_not() {
        let scopes = BTreeMap::from([("scopes".to_owned(), vec!["user:info".to_owned()])]);
        let jane = User { uid: "7".to_owned(), extra: scopes, ..user("jane") };
        assert_eq!(User::decode(&jane.encode()), Some(jane.clone()));
        let mut known = jane.clone();
        for key in ["authentication.kubernetes.io/credential-id", "user-assertion.cloud.google.com", "accessKeyId"] {
            known.extra.insert(key.to_owned(), vec!["x".to_owned()]);
        }
        assert_eq!(User::decode(&known.encode()), Some(jane.clone()));
        let many = User { groups: (0..2000).map(|number| format!("group {number}")).collect(), ..jane };
        assert_eq!(User::decode(&many.encode()), None);
        for unknown in ["", "{}", "7", "me", r#"{"username": ""}"#, r#"{"groups": ["system:masters"]}"#] {
            assert_eq!(User::decode(unknown), None, "{unknown}");
        }
        assert_eq!(User::decode(r#"{"username": "a", "groups": null}"#).unwrap().groups, [""; 0]);
    }
}
